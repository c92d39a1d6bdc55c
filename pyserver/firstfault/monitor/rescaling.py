"""What a script multiplies the gradients by between the last backward and the step: ``p.grad.mul_(1 / tokens)``.

Without it the weights of targets would be those of the losses, not of the step. Clipping and the gradient scaler are
left out of the factor. The norm of a few thousand gradient elements is compared; tensors only, nothing is read here.
The factor stands where ``probes/gradient_state.py`` puts it, which knows more and waits for the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from firstfault.prove.record import Record

_PARAMETERS = 8
_ELEMENTS = 4096


def install(record: Record, model: torch.nn.Module) -> None:
    probe = _Probe(record, model)
    record.on("accumulated", probe.accumulated)
    record.on("step", probe.step)
    record.around = probe.around


class _Probe:
    def __init__(self, record: Record, model: torch.nn.Module) -> None:
        self.record = record
        self.model = model
        self.parameters: list[torch.nn.Parameter] = []
        self.norm: torch.Tensor | None = None  # behind the last backward
        self.known: Any = 1.0  # the factor of clipping and unscaling since then

    def accumulated(self, _: dict[str, Any]) -> None:
        if not any(each.grad is not None for each in self.parameters):
            with_gradient = [each for each in self.model.parameters() if each.grad is not None]
            self.parameters = with_gradient[:: max(1, len(with_gradient) // _PARAMETERS)][:_PARAMETERS]
        self.norm, self.known = self._norm(), 1.0

    def around(self, call: Callable[[], Any]) -> tuple[Any, Any]:
        """Run a call that changes gradients for a reason of its own, and say by what factor."""
        if self.record.muted:
            return call(), 1.0
        measure = self.record.guard("rescaling", self._norm)
        before = measure()
        answer = call()
        factor = self.record.guard("rescaling", _ratio)(measure(), before)
        self.known = self.known if factor is None else self.known * factor
        return answer, 1.0 if factor is None else factor

    def step(self, optimizer: Any) -> None:
        factor = _ratio(self._norm(), self.norm)
        if factor is not None:
            factors = self.record.window.micro_batches[-1].setdefault("factor_after", {})
            factors[str(self.record.number(optimizer))] = factor / self.known

    def _norm(self) -> torch.Tensor | None:
        gradients = [each.grad for each in self.parameters if each.grad is not None and not each.grad.is_sparse]
        local = [each.to_local() if hasattr(each, "to_local") else each for each in gradients]
        local = [each for each in local if each.device == local[0].device]
        if not local:
            return None
        norms = [each.detach().reshape(-1)[:_ELEMENTS].float().norm() for each in local]
        return torch.stack(norms).norm()


def _ratio(now: torch.Tensor | None, before: torch.Tensor | None) -> torch.Tensor | None:
    """1 where there is nothing to compare: no gradient, or none that is finite."""
    if now is None or before is None:
        return None
    ratio = now / before
    return torch.where(torch.isfinite(ratio) & (ratio > 0), ratio, torch.ones_like(ratio))
