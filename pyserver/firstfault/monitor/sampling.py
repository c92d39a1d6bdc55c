"""Which windows are measured: the first two, then one in ``every``; in the others micro-batches and steps are counted.

A window ends with the optimizer's step. What ``prove/record.py`` collects after it for the ledger is not needed here,
so between measured windows the record is muted, and a probe returns at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from firstfault.prove.messages import Message
from firstfault.prove.probes.patching import Undo, wrap
from firstfault.prove.record import Record, Window

_FIRST = 2  # windows that are measured at the start; those that a gradient scaler skips come on top
_CALLED = ("activity", "begin_backward", "end_backward", "begin_step", "end_step", "skip_step", "event")


class Sampled(Record):
    """Calls ``ended`` with the number of micro-batches at each step. Of its own methods none raises into training."""

    def __init__(
        self,
        send: Callable[[Message], None],
        every: int,
        place: Callable[[], tuple[int, int]],
        ended: Callable[[int], None],
        failed: Callable[[str], None],
    ) -> None:
        super().__init__(send, place=place)
        self.every = every
        self.ended = ended
        self.failed = failed
        self.off = False
        self.windows = 0  # that ended, skipped ones with them
        self.skipped = 0
        self.micro_batches = 0
        self.open = 0  # micro-batches since the last step
        self.sizes: Counter[int] = Counter()  # of windows
        self.measured = 0
        self._in_backward = self._stepped_within = False
        for name in _CALLED:
            setattr(self, name, self.never_raising(getattr(self, name)))

    def never_raising(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def safe(*arguments: Any, **named: Any) -> Any:
            try:
                return None if self.off else call(*arguments, **named)
            except Exception as error:
                return self.failed(f"{type(error).__name__}: {error}")

        return safe

    def count_backwards(self) -> Undo:
        """Around all other probes, and in all windows."""
        finish = self.never_raising(self._finish_backward)

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def backward(*arguments: Any, **named: Any) -> Any:
                if self._in_backward or self.off:
                    return original(*arguments, **named)
                self._in_backward = True
                try:
                    return original(*arguments, **named)
                finally:
                    self._in_backward = False
                    finish()

            return backward

        return wrap(torch.autograd, "backward", make)

    def _finish_backward(self) -> None:
        self.micro_batches += 1
        self.open += 1
        if self._stepped_within:  # optimizers that step as soon as a gradient is there
            self._stepped_within = False
            self._count()
            self._turn()

    def begin_step(self, optimizer: Any) -> None:
        super().begin_step(optimizer)
        if self._in_backward:
            self._stepped_within = True
        else:
            self._count()

    def end_step(self, optimizer: Any) -> None:
        super().end_step(optimizer)
        if not self._in_backward:
            self._turn()

    def skip_step(self, optimizer: Any) -> None:
        super().skip_step(optimizer)
        self.skipped += self.open > 0
        self._count()
        self._turn()

    def close(self) -> None:
        self.measured += self.window.stepped and not self.window.skipped
        super().close()

    def _count(self) -> None:
        """A step that uses micro-batches ends their window; a second optimizer's step right after it has none left."""
        if self.open:
            self.windows += 1
            self.sizes[self.open] += 1
            size, self.open = self.open, 0
            self.ended(size)

    def _turn(self) -> None:
        if self.window.stepped:
            self.close()
        self.window = Window(self.windows)
        self.muted = self.off or not (self.measured < _FIRST or self.windows % self.every == 0)


def read_at_once(window: Window) -> None:
    """The numbers of a window as numbers: one transfer from the GPU instead of one for each."""
    found: list[tuple[Any, Any, torch.Tensor]] = []
    _collect([window.micro_batches, window.events, window.values], found)
    by_device: dict[torch.device, list[tuple[Any, Any, torch.Tensor]]] = {}
    for each in found:
        by_device.setdefault(each[2].device, []).append(each)
    for device, places in by_device.items():
        exact = torch.float32 if device.type == "mps" else torch.float64
        numbers = torch.stack([tensor.detach().reshape(()).to(exact) for _, _, tensor in places]).tolist()
        for (holder, key, _), number in zip(places, numbers):
            holder[key] = number


def _collect(value: Any, found: list[tuple[Any, Any, torch.Tensor]]) -> None:
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(each, torch.Tensor):
            if each.numel() == 1:
                found.append((value, key, each))
        elif isinstance(each, (dict, list)):
            _collect(each, found)
