"""The metrics of a log as curves: what each writer's loss, gradient norm and loss scale did, with their lines.

A curve has one loss, the one that stands for the whole training where several are printed. Where a count of steps or
epochs starts again, a new segment begins: a second fold or a second run is no jump of the first.
"""

import math
from collections import Counter
from functools import cached_property
from itertools import groupby, pairwise
from typing import NamedTuple

from firstfault.logs.log import Line, Log
from firstfault.logs.metrics import MAIN, Reading, readings


class Point(NamedTuple):
    line: Line
    value: float
    step: int | None
    epoch: float | None

    @property
    def finite(self) -> bool:
        return math.isfinite(self.value)


class Curve(NamedTuple):
    """What one writer printed. ``skipped`` are the lines of steps that an overflow of float16 cost."""

    loss: tuple[Point, ...]
    evaluated: tuple[Point, ...]
    norms: tuple[Point, ...]
    scales: tuple[Point, ...]
    rates: tuple[Point, ...]
    skipped: tuple[Line, ...]
    game: bool


class Curves:
    """The curves of a log, read when somebody asks for them."""

    def __init__(self, log: Log) -> None:
        self.log = log

    @cached_property
    def all(self) -> tuple[Curve, ...]:
        by_stream = sorted(self.log.lines, key=lambda line: (line.stream, line.order))
        found = [_curve(list(readings(own))) for _, own in groupby(by_stream, key=lambda line: line.stream)]
        return tuple(each for each in found if each.loss or each.scales or each.norms)

    def of(self, line: Line) -> Curve | None:
        """The curve of the writer of this line."""
        return next((each for each in self.all if _writer(each) == line.stream), None)


def _curve(found: list[Reading]) -> Curve:
    name = _main_loss(found)
    own = [(each, each.losses.get(name)) for each in found]
    return Curve(
        loss=_points(own),
        evaluated=_points([(each, each.eval_loss) for each in found]),
        norms=_points([(each, each.grad_norm) for each in found]),
        scales=_points([(each, each.scale) for each in found]),
        rates=_points([(each, each.rate) for each in found]),
        skipped=tuple(each.line for each in found if each.skipped),
        game=any(each.game for each in found),
    )


def _main_loss(found: list[Reading]) -> str:
    """Of several names the one with most numbers: some bars show a loss of their own that never becomes one."""
    counts = Counter(name for each in found for name in each.losses)
    numbers = Counter(name for each in found for name, value in each.losses.items() if math.isfinite(value))
    named = [name for name in MAIN if name in counts]
    return max(named or list(counts), key=lambda name: (numbers[name] > 0, counts[name]), default="")


def _points(values: list[tuple[Reading, float | None]]) -> tuple[Point, ...]:
    """A bar that is drawn again with the same value tells nothing new."""
    points: list[Point] = []
    for reading, value in values:
        again = reading.bar and points and (value == points[-1].value or reading.step == points[-1].step is not None)
        if value is not None and not again:
            points.append(Point(reading.line, value, reading.step, reading.epoch))
    return tuple(points)


def _writer(curve: Curve) -> int:
    return next(part[0].line.stream for part in (curve.loss, curve.scales, curve.norms) if part)


def segments(points: tuple[Point, ...]) -> list[list[Point]]:
    """The points, cut where the count of epochs, or of steps where no epoch is told, goes back."""
    parts: list[list[Point]] = [[]]
    for before, after in pairwise((None, *points)):
        assert after is not None
        if before is not None and _goes_back(before, after):
            parts.append([])
        parts[-1].append(after)
    return parts


def _goes_back(before: Point, after: Point) -> bool:
    if before.epoch is not None and after.epoch is not None:
        return after.epoch < before.epoch
    return before.step is not None and after.step is not None and after.step < before.step


def place(point: Point) -> str:
    """Where the training stood, in the words of the log."""
    parts = []
    if point.epoch is not None:
        parts.append(f"epoch {point.epoch:g}")
    if point.step is not None:
        parts.append(f"step {point.step}")
    return ", ".join(parts) or f"line {point.line.number}"


def said(value: float) -> str:
    return f"{value:.5g}"


def median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
