"""The step ledger: which calls ran, in which order, between the backward calls of a window.

Events and what they carry beside ``after`` and ``stepped`` (``prove/record.py``):

    zero_grad   optimizer=0 | None (a model's)      clip      call, factor, scale (not 1: gradients were still scaled)
    unscale     enabled                             update    of a gradient scaler, enabled
    schedule    scheduler, length                   ema
    data_begin  again, length                       data_end

and for each micro-batch of a DistributedDataParallel model ``sync``: would its gradients be shared, as forward saw it
and as backward did. ``window.values["averaged_over_ranks"]``: the wrapper takes the mean.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.optim import lr_scheduler, swa_utils
from torch.utils.data import dataloader

from firstfault.prove.probes.boundaries import scaler_classes
from firstfault.prove.probes.patching import Undo, all_of, wrap
from firstfault.prove.record import Record, Window

Call = Callable[..., Any]


def install(record: Record) -> Undo:
    ledger = _Ledger(record)
    clip = torch.nn.utils.clip_grad
    undone = [
        wrap(torch.optim.Optimizer, "zero_grad", partial(ledger.calls, ledger.zero_grad)),
        wrap(torch.nn.Module, "zero_grad", partial(ledger.calls, ledger.zero_grad)),
        *(wrap(owner, name, ledger.clip) for owner in (torch.nn.utils, clip) for name in _CLIPS),
        *(wrap(scaler, "unscale_", ledger.unscale) for scaler in scaler_classes()),
        *(wrap(scaler, "update", partial(ledger.calls, ledger.update)) for scaler in scaler_classes()),
        *(wrap(each, "step", partial(ledger.calls, ledger.schedule)) for each in _schedulers()),
        wrap(swa_utils.AveragedModel, "update_parameters", partial(ledger.calls, lambda *_: record.event("ema"))),
        wrap(torch.nn.parallel.DistributedDataParallel, "forward", partial(ledger.calls, ledger.forward)),
        wrap(dataloader.DataLoader, "__iter__", partial(ledger.calls, ledger.data_begin)),
    ]
    if hasattr(dataloader, "_BaseDataLoaderIter"):
        undone.append(wrap(dataloader._BaseDataLoaderIter, "__next__", ledger.next_batch))
    record.on("backward", lambda _: ledger.before_backward())
    record.on("accumulated", ledger.after_backward)
    record.on("window", ledger.complete)
    return all_of(undone)


_CLIPS = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm")


def _schedulers() -> list[type]:
    classes = [each for each in vars(lr_scheduler).values() if isinstance(each, type) and "step" in vars(each)]
    return list(dict.fromkeys(classes))


class _Ledger:
    def __init__(self, record: Record) -> None:
        self.record = record
        self.busy = False  # a call within a call of the same kind is no event of its own
        self.scale: Any = 1.0  # of the gradients as they are: 1 after unscale_
        self.wrapped: Any = None  # the DistributedDataParallel model whose forward ran last
        self.sync_forward: bool | None = None
        self.sync_backward: bool | None = None
        self.loaders: weakref.WeakSet[Any] = weakref.WeakSet()

    def calls(self, note: Call, original: Call) -> Call:
        """The original, and a note of it that cannot fail; a note before, so that a call that raises is known too."""
        note = self.record.guard("ledger", note)

        def call(*arguments: Any, **named: Any) -> Any:
            if self.busy or self.record.muted:
                return original(*arguments, **named)
            note(*arguments)
            self.busy = original.__name__ == "step"
            try:
                return original(*arguments, **named)
            finally:
                self.busy = False

        return call

    def zero_grad(self, owner: Any, *_: Any) -> None:
        is_optimizer = isinstance(owner, torch.optim.Optimizer)
        self.record.event("zero_grad", optimizer=self.record.number(owner) if is_optimizer else None)

    def clip(self, original: Call) -> Call:
        def clip(*arguments: Any, **named: Any) -> Any:
            if self.busy or self.record.muted:
                return original(*arguments, **named)
            self.busy = True
            try:
                answer, factor = self._around(lambda: original(*arguments, **named))
            finally:
                self.busy = False
            self.record.event("clip", call=original.__name__, factor=factor, scale=self.scale)
            return answer

        return clip

    def unscale(self, original: Call) -> Call:
        def unscale_(scaler: Any, *arguments: Any, **named: Any) -> Any:
            self.record.event("unscale", enabled=scaler.is_enabled())
            answer, _ = self._around(lambda: original(scaler, *arguments, **named))
            self.scale = 1.0
            return answer

        return unscale_

    def _around(self, call: Call) -> tuple[Any, float]:
        around = self.record.around
        return around(call) if around else (call(), 1.0)

    def update(self, scaler: Any, *_: Any) -> None:
        self.record.event("update", enabled=scaler.is_enabled())

    def schedule(self, scheduler: Any, *_: Any) -> None:
        if getattr(scheduler, "last_epoch", 0) == -1:
            return  # its constructor takes the first step
        self.record.event("schedule", scheduler=type(scheduler).__name__, length=_length(scheduler))

    def forward(self, model: Any, *_: Any) -> None:
        if torch.is_grad_enabled() and model.training:
            self.wrapped, self.sync_forward = model, bool(model.require_backward_grad_sync)

    def before_backward(self) -> None:
        self.scale = self.record.scale
        if self.wrapped is not None:
            self.sync_backward = bool(self.wrapped.require_backward_grad_sync)

    def after_backward(self, micro_batch: dict[str, Any]) -> None:
        if self.sync_forward is not None:
            micro_batch["sync"] = {"forward": self.sync_forward, "backward": self.sync_backward}
            self.sync_forward = None

    def complete(self, window: Window) -> None:
        if self.wrapped is not None:
            window.values["averaged_over_ranks"] = True

    def data_begin(self, loader: Any, *_: Any) -> None:
        try:
            length = len(loader)
        except TypeError:  # a stream
            length = None
        again = loader in self.loaders
        self.loaders.add(loader)
        self.record.event("data_begin", again=again, length=length)

    def next_batch(self, original: Call) -> Call:
        def __next__(iterator: Any) -> Any:
            try:
                return original(iterator)
            except StopIteration:
                self.record.event("data_end")
                raise

        return __next__


def _length(scheduler: Any) -> int | None:
    """The number of steps that a schedule was made for, where it says so."""
    for name in ("total_steps", "T_max", "total_iters"):
        value = getattr(scheduler, name, None)
        if isinstance(value, int) and value > 0:
            return value
    lambdas = getattr(scheduler, "lr_lambdas", None) or [None]
    value = (getattr(lambdas[0], "keywords", None) or {}).get("num_training_steps")
    return value if isinstance(value, int) else None
