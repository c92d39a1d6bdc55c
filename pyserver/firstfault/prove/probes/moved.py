"""Did the weights change between two calls of backward of one window?

Sharpness-aware training climbs with one gradient and steps with another; then the calls are not micro-batches of one
window, and clearing the gradients between them is right. In a micro-batch stands `"moved": true` where the weights
were others than at the backward before it in the same window. A few elements of some parameters are compared.
"""

from __future__ import annotations

from typing import Any, Callable

import torch

from firstfault.prove.record import Record

_PARAMETERS = 8
_ELEMENTS = 64


def install(record: Record) -> Callable[[], None]:
    seen: dict[int, torch.Tensor] = {}  # of the last backward, by the optimizer's number

    def accumulated(micro_batch: dict[str, Any]) -> None:
        now = {number: _sample(optimizer) for number, optimizer in enumerate(record.optimizers)}
        if len(record.window.micro_batches) > 1 and any(_differ(seen.get(each), now[each]) for each in now):
            micro_batch["moved"] = True
        seen.clear()
        seen.update(now)

    record.on("accumulated", accumulated)
    return seen.clear


def _sample(optimizer: Any) -> torch.Tensor:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]][:_PARAMETERS]
    local = [each.to_local() if hasattr(each, "to_local") else each for each in parameters]
    return torch.cat([each.detach().reshape(-1)[:_ELEMENTS].double().cpu() for each in local])


def _differ(before: torch.Tensor | None, now: torch.Tensor) -> bool:
    return before is not None and before.shape == now.shape and not torch.equal(before, now)
