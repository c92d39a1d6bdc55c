"""How many steps an epoch makes, and the micro-batches that are left at its end.

An epoch is known where a DataLoader with a length is run through and each of its batches had one backward. It should
make ceil(length / k) steps. Where it makes fewer, the rest may still be used rightly, in a window of k that reaches
into the next epoch; it is not where that window holds more than k.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from torch.utils.data import DataLoader

from firstfault.monitor.sampling import Sampled
from firstfault.prove.probes.patching import Undo, wrap


class Epoch(NamedTuple):
    length: int  # micro-batches
    steps: int
    left: int  # micro-batches behind its last step
    k: int  # micro-batches of most windows

    @property
    def wanted(self) -> int:
        return -(-self.length // self.k)


class _Begun(NamedTuple):
    micro_batches: int
    windows: int
    length: int


class Epochs:
    def __init__(self, record: Sampled, warn: Callable[[str, str], None]) -> None:
        self.record = record
        self.warn = warn  # code, sentence
        self.last: Epoch | None = None
        self._begun: weakref.WeakKeyDictionary[Any, _Begun] = weakref.WeakKeyDictionary()
        self._left: Epoch | None = None  # the open window began in it
        self._said = False

    def install(self) -> Undo:
        begin = self.record.never_raising(self._begin)

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def __iter__(loader: Any) -> Any:
                begin(loader)
                return original(loader)

            return __iter__

        return wrap(DataLoader, "__iter__", make)

    def window_ended(self, size: int) -> None:
        epoch, self._left = self._left, None
        if epoch is not None and size > epoch.k:
            self._say(f"{_steps(epoch)}; the next step used {epoch.left} of it and {size - epoch.left} more")

    def run_ended(self) -> None:
        """The training loop is left without an error."""
        for begun in list(self._begun.values()):
            epoch = self._complete(begun)
            if epoch is not None and 0 < epoch.left < epoch.k:
                left = f"{epoch.left} micro-batch{'' if epoch.left == 1 else 'es'}"
                self._say(f"{_steps(epoch)}; the run ended with {left} that no step used")

    def _say(self, sentence: str) -> None:
        if not self._said:
            self._said = True
            self.warn("GA201", sentence)

    def _begin(self, loader: Any) -> None:
        epoch = self._complete(self._begun.get(loader))
        if epoch is not None:
            self.last = epoch
            self._left = epoch if epoch.left else None
        try:
            length = len(loader)
        except TypeError:  # a stream
            return
        self._begun[loader] = _Begun(self.record.micro_batches, self.record.windows, length)

    def _complete(self, begun: _Begun | None) -> Epoch | None:
        record = self.record
        if begun is None or not record.sizes or record.micro_batches - begun.micro_batches != begun.length:
            return None
        k = record.sizes.most_common(1)[0][0]
        return Epoch(begun.length, record.windows - begun.windows, record.open, k)


def _steps(epoch: Epoch) -> str:
    return (
        f"An epoch of {epoch.length:,} micro-batches made {epoch.steps:,} optimizer steps, not {epoch.wanted:,} "
        f"(windows have {epoch.k})"
    )
