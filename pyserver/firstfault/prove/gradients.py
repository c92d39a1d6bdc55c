"""The gradient of a step beside the one of the objective, for one rank or all of them together.

A single process compares the two itself. Several ranks send sketches, which are added up here: a sketch is linear, and
distances between sketches are those between the gradients to some per cent; equal gradients have equal sketches.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from firstfault.prove.measured import Window

_ROUNDING = 1e-5  # relative; sums of float32 over ranks and micro-batches stay well below it
_TELLING = 100  # times the rounding; accumulation.md, section 3.3
_COARSE = 1e-4  # gradients of 16 bits: their rounding is known well, and a hundred of it would be the gradient itself
_TELLING_COARSE = 5
Sketch = list[float]


class Gradient(NamedTuple):
    """What was applied in one step, as it differs from what the objective wants."""

    error: float  # |applied - wanted| / |wanted|
    cosine: float
    scale: float  # the factor on the wanted gradient that explains most of the difference
    noise: float  # differences up to here are rounding
    kept_error: float  # what happened to the gradient between backward and step: the same against what had arrived
    kept_cosine: float
    kept_scale: float
    apart: float  # the largest difference between what two ranks applied; 0 with one rank

    @property
    def differs(self) -> bool:
        return self.error > (_TELLING if self.noise < _COARSE else _TELLING_COARSE) * self.noise

    @property
    def only_scaled(self) -> bool:
        """Clipped, or divided by the script: then the length says nothing of the losses."""
        return self.kept_cosine > 0.999 and abs(self.kept_scale - 1) > 0.001


def gradient(window: Window) -> Gradient | None:
    """Of the optimizer that ended the window; None where it was not measured."""
    entries = [entry for part in window.parts for entry in part.values.get("gradients", [])[:1]]
    if not entries or len(entries) < len(window.parts):
        return None
    if window.world == 1:
        return Gradient(**{name: float(entries[0][name]) for name in Gradient._fields[:-1]}, apart=0.0)
    if not all(part.values.get("averaged_over_ranks") for part in window.parts):
        return None  # parts of one model, perhaps: the sum over ranks would mean nothing
    sketches = [entry["sketches"] for entry in entries]
    targets, world = sum(entry["targets"] for entry in entries), len(entries)
    applied = [each["applied"] for each in sketches]
    wanted = _sum([each["wanted"] for each in sketches], targets)
    arrived = _sum([each["arrived"] for each in sketches], world)
    if not (_norm(wanted) and _norm(arrived) and _norm(applied[0])):
        return None
    return Gradient(
        *_beside(applied[0], wanted),
        _ROUNDING,
        *_beside(applied[0], arrived),
        apart=max(_norm(_minus(each, applied[0])) for each in applied) / _norm(applied[0]),
    )


def difference(window: Window) -> str:
    """A sentence on the gradient of a step that is not the wanted one; nothing where it is, or was not measured."""
    found = gradient(window)
    if found is None or not found.differs:
        return ""
    if found.only_scaled or _clipped(window):
        return f" The gradient of that step has a cosine of {found.cosine:.3g} with the wanted one."
    return (
        f" The gradient of that step is {100 * found.error:.3g}% away from the wanted one (cosine {found.cosine:.3g})."
    )


def _clipped(window: Window) -> bool:
    """Clips between micro-batches bend the gradient a little and shorten it much: not all of that is the losses'."""
    clips = [event for part in window.parts for event in part.named("clip")]
    return any(float(each.details.get("factor", 1.0)) < 1 for each in clips)


def _beside(one: Sketch, other: Sketch) -> tuple[float, float, float]:
    """Relative error, cosine, scale."""
    product = sum(map(float.__mul__, one, other))
    length = _norm(other)
    return _norm(_minus(one, other)) / length, product / (_norm(one) * length), product / length**2


def _sum(sketches: list[Sketch], divisor: float) -> Sketch:
    return [sum(numbers) / divisor for numbers in zip(*sketches, strict=True)]


def _minus(one: Sketch, other: Sketch) -> Sketch:
    return list(map(float.__sub__, one, other))


def _norm(sketch: Sketch) -> float:
    return math.sqrt(sum(number * number for number in sketch))
