"""What training does to BatchNorm: updates of running statistics for each step, and what the batches were like.

In a window's values stands for each layer that updated its running statistics, or took them from the batch,

    "batchnorm": [{"layer": "Sequential/1", "kind": "BatchNorm2d", "channels": 64, "momentum": 0.1, "updates": 4,
                   "batches": 4, "recomputed": 0, "elements": 1568, "drift": 0.18, "spread": 1.1,
                   "synchronised": False}]

`recomputed` are the updates that a checkpoint made during backward, `elements` the fewest values for each channel,
`drift` the mean distance of batch and running mean in running deviations (None at the first batch ever), `spread` how
much the means of micro-batches scatter beside independent samples. `"batchnorm_still"` counts the layers that were
trained through in evaluation mode, and `"batchnorm_compiled"` says that torch.compile was called: layers in a compiled
part of the model are not seen.
"""

from __future__ import annotations

import math
from typing import Any, Callable

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from firstfault.prove.probes.patching import Undo, all_of, compiling, wrap
from firstfault.prove.probes.statistics import Batch, describe, numbers, spread
from firstfault.prove.record import Record, Window


def install(record: Record) -> Undo:
    probe = _Probe(record)
    guarded = record.guard("batchnorm", probe.before)

    def before(module: Any, inputs: tuple[Any, ...]) -> None:
        if not compiling():  # torch.compile reads hooks as a part of the model
            guarded(module, inputs)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def compile(*arguments: Any, **named: Any) -> Any:
            probe.compiled = True
            return original(*arguments, **named)

        return compile

    handle = torch.nn.modules.module.register_module_forward_pre_hook(before)
    record.on("window", probe.close)
    return all_of([handle.remove, wrap(torch, "compile", make), wrap(torch.nn.Module, "compile", make)])


class _Layer:
    """What one layer saw in the open window."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.batches: list[Batch] = []
        self.recomputed = 0


class _Forwards:
    """The layers that ran for one window."""

    def __init__(self) -> None:
        self.first: Any = None  # the module that was called first holds the others, as a rule
        self.layers: dict[int, _Layer] = {}
        self.still: set[int] = set()


class _Probe:
    def __init__(self, record: Record) -> None:
        self.record = record
        self.open, self.next = _Forwards(), _Forwards()
        self.compiled = False

    def before(self, module: Any, inputs: tuple[Any, ...]) -> None:
        if self.record.muted:
            return
        # The next window's first forward comes before the loss that shows that there is a next window.
        forwards = self.next if self.record.window.stepped else self.open
        if forwards.first is None:
            forwards.first = module
        if isinstance(module, _BatchNorm) and inputs:
            self._layer(forwards, module, inputs[0])

    def _layer(self, forwards: _Forwards, module: Any, batch: torch.Tensor) -> None:
        if not module.training:
            if torch.is_grad_enabled():
                forwards.still.add(id(module))
            return
        layer = forwards.layers.setdefault(id(module), _Layer(module))
        if self.record.depth:
            layer.recomputed += 1  # a checkpoint runs its part of the model again
        else:
            layer.batches.append(_described(module, batch))

    def close(self, window: Window) -> None:
        forwards, self.open, self.next = self.open, self.next, _Forwards()
        layers = [each for each in forwards.layers.values() if each.batches]
        if layers:
            names = _names(forwards.first)
            window.values["batchnorm"] = [_summary(layer, names) for layer in layers]
            _read(window.values["batchnorm"])
        if self.compiled:
            window.values["batchnorm_compiled"] = True
        if forwards.still:
            window.values["batchnorm_still"] = len(forwards.still - set(forwards.layers))


def _described(module: Any, batch: torch.Tensor) -> Batch:
    counted = module.num_batches_tracked
    found = describe(batch, module.running_mean, module.running_var, module.eps)
    if found.drift is None or counted is None:
        return found
    # The statistics that a layer begins with tell nothing; whether they are those is not asked of the GPU here.
    return found._replace(drift=torch.where(counted == 0, math.nan, found.drift))


def _names(root: Any) -> dict[int, str]:
    return {id(module): name for name, module in root.named_modules()}


def _summary(layer: _Layer, names: dict[int, str]) -> dict[str, Any]:
    module = layer.module
    drifts = [batch.drift for batch in layer.batches if batch.drift is not None]  # NaN where it is not known yet
    updates = len(layer.batches) + layer.recomputed
    return {
        "layer": names.get(id(module), ""),
        "kind": type(module).__name__,
        "channels": module.num_features,
        "momentum": module.momentum,
        "updates": updates if module.running_mean is not None else 0,
        "batches": len(layer.batches),
        "recomputed": layer.recomputed,
        "elements": min(batch.elements for batch in layer.batches),
        "drift": torch.stack(drifts).nanmean() if drifts else None,
        "spread": spread(layer.batches),
        "synchronised": isinstance(module, torch.nn.SyncBatchNorm),
    }


def _read(summaries: list[dict[str, Any]]) -> None:
    """The numbers of all layers at once."""
    read = iter(numbers([each[name] for each in summaries for name in ("drift", "spread")]))
    for each in summaries:
        each.update(drift=next(read), spread=next(read))
