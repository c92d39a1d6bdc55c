"""Arithmetic on the target weights of a window: the ratio, the mass, and what a mass is called.

For a mean over all N targets each weighs 1/N: the ratio of the largest to the smallest weight is 1, and the mass, the
sum of weight x targets, is 1. A mean of means has a ratio above 1, a fault of scale another mass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from firstfault.prove.measured import Loss, Window

_TOLERANCE = 1e-3  # of a mass; accumulation.md, section 7: an alert at 1e-3
_COARSE = 1e-2  # the same where the loss is computed in 16 bits: one rounding is up to 0.4 %
_COARSE_TYPES = ("float16", "bfloat16")
RATIO = 1.01  # an alert above this; accumulation.md, section 7


class Row(NamedTuple):
    """The targets of one micro-batch at one loss."""

    rank: int
    micro_batch: int
    loss: Loss
    dropped: bool = False


class Term(NamedTuple):
    """One loss of the script in one window: every call from the same line, one for each micro-batch.

    Where a line is called several times for a micro-batch (two heads, chunks of a long text), each call is a term.
    """

    window: Window
    file: str
    line: int
    rows: tuple[Row, ...]  # those with targets

    @property
    def mass(self) -> float:
        return sum(row.loss.mass for row in self.rows)

    @property
    def targets(self) -> int:
        return sum(row.loss.targets for row in self.rows)

    @property
    def counted(self) -> float:
        return sum(row.loss.counted for row in self.rows)

    @property
    def ratio(self) -> float:
        return spread(abs(row.loss.weight) for row in self.rows)

    @property
    def count_ratio(self) -> float:
        return spread(row.loss.counted for row in self.rows)

    @property
    def micro_batches(self) -> int:
        """Of one rank: k."""
        return max(sum(row.rank == rank for row in self.rows) for rank in {row.rank for row in self.rows})

    @property
    def one_by_one(self) -> bool:
        """The script gives targets of one micro-batch different weights; then no ratio means anything."""
        return any(abs(row.loss.high - row.loss.low) > _COARSE * abs(row.loss.weight) for row in self.rows)

    @property
    def tolerance(self) -> float:
        return _COARSE if any(row.loss.dtype in _COARSE_TYPES for row in self.rows) else _TOLERANCE


def terms(window: Window) -> list[Term]:
    """The losses of a window, by the line that calls them. One whose weights are all zero brings nothing."""
    rows: dict[tuple[str, int, object], list[Row]] = {}
    for part in window.parts:
        for number, micro_batch in enumerate(part.micro_batches):
            calls: Counter[tuple[str, int, str]] = Counter()
            for loss in micro_batch.losses:
                call = (loss.file, loss.line, loss.kind)
                calls[call] += 1
                key = (loss.file, loss.line, (loss.kind, micro_batch.file, micro_batch.line, calls[call]))
                if loss.counted > 0 and abs(loss.weight) < float("inf"):
                    rows.setdefault(key, []).append(Row(part.rank, number, loss, micro_batch.dropped))
    found = [Term(window, key[0], key[1], tuple(each)) for key, each in rows.items()]
    return [term for term in found if any(row.loss.weight for row in term.rows)]


def usual_length(windows: list[Window]) -> int:
    """The number of micro-batches that most windows have; of two the later one, since the first may be off."""
    lengths = [window.length for window in windows]
    return max(reversed(lengths), key=lengths.count, default=0)


def is_close(mass: float, wanted: float, tolerance: float) -> bool:
    return abs(mass / wanted - 1) <= tolerance


def spread(numbers: Iterable[float]) -> float:
    known = [each for each in numbers if each > 0]
    return max(known) / min(known) if known else 1.0
