"""How far the gradient of a step was from the one that the objective wants.

Each parameter's part of each backward is caught as it arrives, and divided by the weight that its targets had in that
backward: see `contributions.py`. In a window's values stands, for each optimizer that stepped in it,

    "gradients": [{"optimizer": 0, "targets": 120, "error": ..., "cosine": ..., "scale": ..., "noise": ...,
                   "kept_error": ..., "kept_cosine": ..., "kept_scale": ..., "norm": ..., "arrived_norm": ...}]

With several ranks a rank has no more than its own part of the objective. There the entry has `"sketches"` instead,
of what was applied, wanted and arrived, so that the caller can add up the ranks.
"""

from __future__ import annotations

import math
from typing import Any, Callable

import torch

from firstfault.prove.probes.contributions import Contributions, Triple, compare, sketch
from firstfault.prove.probes.patching import Undo, all_of, wrap
from firstfault.prove.record import Record, Window

LARGEST = 2 << 30  # bytes of copies that are kept at most,
SHARE = 0.25  # and the share of a GPU's free memory that they may take


def install(record: Record) -> Undo:
    """Follow all parameters that an optimizer is given from now on."""
    probe = _Probe(record)
    record.on("accumulated", probe.accumulated)
    record.on("step", probe.step)
    record.on("window", probe.close)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        follow = record.guard("gradient", probe.follow)

        def add_param_group(optimizer: Any, group: Any) -> Any:
            answer = original(optimizer, group)
            follow(optimizer)
            return answer

        return add_param_group

    return all_of([probe.leave, wrap(torch.optim.Optimizer, "add_param_group", make)])


class _Probe:
    def __init__(self, record: Record) -> None:
        self.record = record
        self.followed: dict[int, tuple[torch.Tensor, Any]] = {}
        self.bytes = 0
        self.contributions = Contributions()
        self.lines: set[tuple[str, int]] = set()  # where the losses of the open window stand
        self.why_not = ""  # the open window is not measured
        self.weighed: dict[str, Any] | None = None  # the loss that has this weight
        self.weight = 0.0

    def follow(self, optimizer: Any) -> None:
        for parameter in _parameters(optimizer):
            if parameter.requires_grad and parameter.is_leaf and id(parameter) not in self.followed:
                self.bytes += 2 * parameter.numel() * max(4, parameter.element_size())
                self.followed[id(parameter)] = (parameter, parameter.register_hook(self._catch(parameter)))

    def _catch(self, parameter: torch.Tensor) -> Callable[[torch.Tensor], None]:
        add = self.record.guard("gradient", self._add)

        def caught(gradient: torch.Tensor) -> None:
            if self.record.depth and not self.record.muted and not self.why_not:
                add(parameter, gradient)

        return caught

    def _add(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        losses = self.record.window.micro_batches[-1]["losses"]
        self.why_not = self._too_large(gradient) or _unusable(gradient)
        if not losses:
            self.why_not = "a backward came from no loss whose targets are counted"
        if not self.why_not:
            try:
                self.contributions.add(parameter, gradient, self._weight(losses), self.record.scale)
            except RuntimeError as error:  # no memory, above all
                self.why_not = f"copies of the gradients could not be kept ({error})"[:200]
        if self.why_not:
            self.contributions = Contributions()

    def _weight(self, losses: list[dict[str, Any]]) -> float:
        """Of the loss whose backward runs; read once, since reading a number waits for the GPU."""
        if self.weighed is not losses[-1]:
            self.weighed, self.weight = losses[-1], float(losses[-1]["weight"])
        return self.weight

    def _too_large(self, gradient: torch.Tensor) -> str:
        limit = LARGEST
        if gradient.is_cuda and self.contributions.empty():
            limit = min(limit, int(SHARE * torch.cuda.mem_get_info(gradient.device)[0]))
        if self.bytes <= limit:
            return ""
        return f"two copies of the gradients take {self.bytes >> 20} MB, {limit >> 20} MB are allowed"

    def accumulated(self, micro_batch: dict[str, Any]) -> None:
        weights = [float(loss[which]) for loss in micro_batch["losses"] for which in ("low", "high")]
        self.lines.update((loss["file"], loss["line"]) for loss in micro_batch["losses"])
        if weights and not _alike(weights):
            self.why_not = self.why_not or "the targets of one micro-batch have different weights"
        if len(self.lines) > 1:
            self.why_not = self.why_not or "a window adds up several losses"

    def step(self, optimizer: Any) -> None:
        self.follow(optimizer)  # those that were there before the probe
        if self.why_not:
            return
        places, triples = self.contributions.take(_parameters(optimizer))
        triples = _unscaled(triples, optimizer)
        window = self.record.window
        targets = sum(float(loss["counted"]) for each in window.micro_batches for loss in each["losses"])
        if not triples or not targets > 0:
            self.record.not_measured("gradient", "no gradient arrived at the optimizer's own parameters (as with FSDP)")
            return
        several = self.record.place()[1] > 1
        found = _sketched(places, triples) if several else self._compared(triples, targets)
        if found:
            entry = {"optimizer": self.record.number(optimizer), "targets": targets, **found}
            window.values.setdefault("gradients", []).append(entry)

    def _compared(self, triples: list[Triple], targets: float) -> dict[str, Any] | None:
        rounding = self.contributions.precision * math.sqrt(len(self.record.window.micro_batches))
        found = compare(triples, targets, rounding)
        if found is None:
            self.record.not_measured("gradient", "the gradient of a step was zero or not finite")
            return None
        return found._asdict()

    def close(self, window: Window) -> None:
        if self.why_not and window.stepped:
            self.record.not_measured("gradient", self.why_not)
        self.contributions, self.lines, self.why_not = Contributions(), set(), ""

    def leave(self) -> None:
        for _, handle in self.followed.values():
            handle.remove()
        self.followed.clear()


def _parameters(optimizer: Any) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _unscaled(triples: list[Triple], optimizer: Any) -> list[Triple]:
    """A fused optimizer is given the gradient scaler's factor and takes it out itself."""
    left = getattr(optimizer, "grad_scale", None)
    return triples if left is None else [(applied / left, wanted, arrived) for applied, wanted, arrived in triples]


def _unusable(gradient: torch.Tensor) -> str:
    if gradient.layout is not torch.strided:
        return "a gradient is sparse"
    if type(gradient).__name__ == "DTensor":
        return "the gradients are spread over ranks (FSDP2 or tensor parallel)"
    return "" if gradient.is_floating_point() else "a gradient is complex"


def _alike(weights: list[float]) -> bool:
    return max(weights) - min(weights) <= 1e-5 * max(abs(each) for each in weights)


def _sketched(places: list[int], triples: list[Triple]) -> dict[str, Any]:
    return {
        "sketches": {
            name: _short(sketch((place, triple[which]) for place, triple in zip(places, triples)))
            for which, name in enumerate(("applied", "wanted", "arrived"))
        }
    }


def _short(numbers: list[float]) -> list[float]:
    return [float(f"{number:.9g}") for number in numbers]
