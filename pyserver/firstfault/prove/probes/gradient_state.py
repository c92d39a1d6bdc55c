"""What becomes of the gradients between two calls of backward: kept, cleared, multiplied by a factor.

Seen from the gradients themselves, so it does not matter which call did it: ``zero_grad`` of an optimizer or a model,
``p.grad = None``, ``p.grad.mul_(1 / tokens)``. A few thousand elements of some parameters of each optimizer are
compared with what they were. Written for each optimizer by its number:

    window.values["began"]       {"0": "none" | "kept" | "cleared" | "changed"}  at the first backward of the window
    micro_batch["factor_after"]  {"0": 0.01}  what the script itself multiplied the gradients by after this backward
    event "cleared", "changed"   optimizer=0; changed: to others than a multiple of what they were
    event "clip", "unscale"      factor=0.3, what the call multiplied by
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from firstfault.prove.probes.patching import Undo, wrap
from firstfault.prove.record import Record

_PARAMETERS = 16
_ELEMENTS = 4096
_SAME_DIRECTION = 1e-2  # relative: half precision rounds each element by up to 0.4 %

Sample = dict[int, torch.Tensor]  # by the place of the parameter


def install(record: Record) -> Undo:
    state = _State(record)
    record.on("backward", lambda _: state.before_backward())
    record.on("accumulated", state.after_backward)
    record.on("step", lambda _: state.settle())
    record.around = state.around  # the ledger asks what a clip did
    return wrap(torch.optim.Optimizer, "add_param_group", lambda original: _known(record, original))


def _known(record: Record, original: Callable[..., Any]) -> Callable[..., Any]:
    def add_param_group(optimizer: Any, *arguments: Any, **named: Any) -> Any:
        answer = original(optimizer, *arguments, **named)
        record.number(optimizer)
        return answer

    return add_param_group


class _State:
    def __init__(self, record: Record) -> None:
        self.record = record
        self.kept: dict[int, Sample] = {}

    def before_backward(self) -> None:
        window = self.record.window
        if window.micro_batches:
            self.settle()
            return
        window.values["began"] = {str(number): state for number, state, _ in self._look()}

    def after_backward(self, _: Any) -> None:
        self.kept = {number: _sample(optimizer) for number, optimizer in enumerate(self.record.optimizers)}

    def settle(self) -> None:
        """Write down what the script did to the gradients since the last look, in the open window."""
        micro_batches = self.record.window.micro_batches
        for number, state, factor in self._look():
            if state in ("cleared", "changed"):
                self.record.event(state, optimizer=number)
            elif state == "kept" and factor != 1.0 and micro_batches:
                factors = micro_batches[-1].setdefault("factor_after", {})
                factors[str(number)] = factors.get(str(number), 1.0) * factor
        self.after_backward(None)

    def around(self, call: Callable[[], Any]) -> tuple[Any, float]:
        """Run a call that changes gradients for a reason of its own, and say by what factor."""
        self.settle()
        answer = call()
        factors = [factor for _, state, factor in self._look() if state == "kept"]
        self.after_backward(None)
        return answer, min(factors, default=1.0)

    def _look(self) -> Iterator[tuple[int, str, float]]:
        for number, optimizer in enumerate(self.record.optimizers):
            yield (number, *_compare(self.kept.get(number, {}), _sample(optimizer)))


def _sample(optimizer: Any) -> Sample:
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    step = max(1, -(-len(parameters) // _PARAMETERS))
    found: Sample = {}
    for place in range(0, len(parameters), step):
        gradient = parameters[place].grad
        if gradient is not None and not gradient.is_sparse:
            local = gradient.to_local() if hasattr(gradient, "to_local") else gradient
            found[place] = local.detach().reshape(-1)[:_ELEMENTS].clone()
    return found


def _compare(before: Sample, now: Sample) -> tuple[str, float]:
    if not any(bool(each.any()) for each in before.values()):
        return "none", 1.0
    if not any(bool(each.any()) for each in now.values()):
        return "cleared", 1.0
    if any(place not in now for place in before):
        return "changed", 1.0
    a = torch.cat([before[place].double().cpu() for place in before])
    b = torch.cat([now[place].double().cpu() for place in before])
    if torch.equal(a, b):
        return "kept", 1.0
    factor = float(a @ b / (a @ a))
    off = float((b - factor * a).norm() / b.norm())
    return ("kept", factor) if off < _SAME_DIRECTION else ("changed", 1.0)
