"""Failures that raise no error, read from the curves of a log: each a symptom, with its numbers and its lines.

Metrics show what the training did and seldom why: every answer here names the fact that decides. What a healthy run
does too is not reported: noise, a rise after a fall, a step that a scaler skips now and then, the losses of games.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from math import isfinite, log
from typing import NamedTuple

from firstfault.diagnose.curves import Curve, Curves, Point, median, place, said, segments
from firstfault.logs.log import Line, Log
from firstfault.patterns import gated

RESUMED = gated(
    r"\b(?:[Rr]esum(?:ing|ed)\b.{0,40}\b(?:from|at|training|checkpoint|step|epoch|iteration)"
    r"|(?:[Ll]oad(?:ing|ed)|[Rr]estor(?:ing|ed))\b.{0,40}\b(?:checkpoint|ckpt|training state|states?)\b(?! shards)"
    r"|[Cc]ontinuing training from)",
    "esum", "oad", "estor", "ontinuing",
)  # fmt: skip
ACCUMULATION = gated(
    r"[Gg]radient[_ ][Aa]ccumulation[_ ][Ss]teps[\"']?\s{0,3}[=:]\s{0,3}(?P<count>\d{1,4})\b", "ccumulation"
)
CLASSES = gated(
    r"\b(?:num_classes|n_classes|num_labels|nc|vocab_size|padded_vocab_size|n_vocab)[\"']?\s{0,3}[=:]\s{0,3}(\d{1,7})\b",
    "class", "labels", "nc", "vocab",
)  # fmt: skip
USUAL_CLASSES = (2, 10, 100, 1000)
# So many numbers after a NaN, and the loss has left it; so many equal readings at the end are no accident.
RECOVERED, STAYS = 2, 5
# What a gradient norm has to be beside its usual one, and the loss beside its lowest level, to be said to have risen.
GREW, RISE = 5.0, 2.0
# A loss scale that was once this high fell from somewhere.
HIGH = 128.0
# How many readings before and after a resume are compared. Lines that come more often tell of no resume.
BEFORE, NEAR, MANY_RESUMES = 12, 5, 20


class Symptom(NamedTuple):
    """A signature's id, the numbers for its words, and the lines that show them, the telling one first."""

    signature: str
    values: dict[str, str]
    lines: tuple[Line, ...]


Check = Callable[[Curve, Log], Symptom | None]


def symptoms(curves: Curves) -> Iterator[Symptom]:
    """What the curves of a log show where nothing in it failed aloud, the surest first."""
    for check in CHECKS:
        for curve in curves.all:
            found = check(curve, curves.log)
            if found is not None:
                yield found


# ------------------------------------------------------------------------------------------ NaN


def lost(curve: Curve) -> Point | None:
    """The first reading of the NaN that the loss did not leave again."""
    bad = [at for at, point in enumerate(curve.loss) if not point.finite]
    if not bad or len(curve.loss) - 1 - bad[-1] >= RECOVERED:
        return None
    first = bad[-1]
    while first > 0 and not curve.loss[first - 1].finite:
        first -= 1
    return curve.loss[first]


def before(points: tuple[Point, ...], line: Line) -> list[Point]:
    """The numbers that stand before this line, in order."""
    return [point for point in points if point.finite and point.line.order < line.order]


def nan_values(curve: Curve, line: Line) -> tuple[dict[str, str], tuple[Line, ...]]:
    """What was before the NaN of this line: the last number, and how the gradient norm had grown.

    The lines are that of the first value that was no number, and those that show what was before.
    """
    values: dict[str, str] = {}
    here = next((point for point in curve.loss if point.line.order == line.order), None)
    first = lost(curve)
    if here is not None and not here.finite and first is not None and first.line.order < line.order:
        here, line = first, first.line  # A line that says infinite, where only NaN is known by its words.
    lines = [line]
    if here is not None and (here.step is not None or here.epoch is not None):
        values["place"] = place(here)
    known = before(curve.loss, line)
    if known:
        values.update(last=said(known[-1].value), last_place=place(known[-1]))
        lines.append(known[-1].line)
    norms = before(curve.norms, line)
    if len(norms) >= 4 and norms[-1].value > GREW * median([point.value for point in norms[:-1]]):
        usual = median([point.value for point in norms[:-1]])
        values.update(norm=said(norms[-1].value), norm_before=said(usual), norm_place=place(norms[-1]))
        lines.append(norms[-1].line)
    return values, tuple(dict.fromkeys(lines))


def nan_loss(curve: Curve, log: Log) -> Symptom | None:
    """For logs whose words no signature knows, such as columns below a header."""
    point = lost(curve)
    if point is None:
        return None
    values, lines = nan_values(curve, point.line)
    return Symptom("loss-nan", values, lines)


def norm_not_finite(curve: Curve, log: Log) -> Symptom | None:
    """The gradient norm stays NaN to the end, though the loss is a number: no step is taken, or all are spoilt."""
    count = 0
    for point in reversed(curve.norms):
        if point.finite:
            break
        count += 1
    if count < STAYS:
        return None
    first = curve.norms[-count]
    known = before(curve.norms, first.line)
    values = {"count": str(count), "place": place(first)}
    if known:
        values.update(last=said(known[-1].value), last_place=place(known[-1]))
    return Symptom("grad-nonfinite", values, (first.line, *(point.line for point in known[-1:]), curve.norms[-1].line))


# ------------------------------------------------------------------------------------------ the loss scale


def scale_at_minimum(curve: Curve, log: Log) -> Symptom | None:
    """The loss scale fell step by step to 1 or below, rose never again, and steps are still skipped."""
    scales = [point for point in curve.scales if point.finite and point.value > 0]
    if not scales or scales[-1].value > 1:
        return None
    top = max(range(len(scales)), key=lambda at: (scales[at].value, at))
    fall = scales[top:]
    if scales[top].value < HIGH or any(after.value > before.value for before, after in pairwise(fall)):
        return None
    bottom = next(point for point in fall if point.value <= 1)
    still = [line for line in curve.skipped if line.order > bottom.line.order]
    if not (len(still) >= RECOVERED or scales[-1].value < 1 or (curve.norms and not curve.norms[-1].finite)):
        return None
    own = [line for line in curve.skipped if line.order >= scales[top].line.order]
    values = {"first": said(scales[top].value), "scale": said(scales[-1].value)}
    if own:
        values["skips"] = str(len(own))
    return Symptom("loss-scale-min", values, tuple(dict.fromkeys((bottom.line, scales[top].line, scales[-1].line))))


# ------------------------------------------------------------------------------------------ the level of the loss


def jump_after_resume(curve: Curve, log: Log) -> Symptom | None:
    """The loss behind a line that tells of a resume lies above all that stood before it, and stays there a while."""
    points = [point for point in curve.loss if point.finite]
    if curve.game or len(points) < 6:
        return None
    orders = [point.line.order for point in points]
    marks = [line for line in log.lines if RESUMED.search(line.text)]
    for mark in marks if len(marks) <= MANY_RESUMES else ():
        at = bisect_right(orders, mark.order)
        earlier, later = points[max(at - BEFORE, 0) : at], points[at : at + NEAR]
        if len(earlier) >= 3 and len(later) >= 3 and _jumped(earlier, later):
            values = {
                "before": said(earlier[-1].value), "before_place": place(earlier[-1]),
                "after": said(later[0].value), "after_place": place(later[0]),
            }  # fmt: skip
            return Symptom("resume-spike", values, (later[0].line, earlier[-1].line, mark))
    return None


def _jumped(earlier: list[Point], later: list[Point]) -> bool:
    """More than noise: the lowest of the first three above 1.2 times the highest before, and above its spread."""
    old, new = [point.value for point in earlier], [point.value for point in later[:3]]
    spread = max(old) - min(old)
    return min(new) > max(old) + max(0.2 * abs(max(old)), spread) and min(old) > 0


def diverged(curve: Curve, log: Log) -> Symptom | None:
    """The loss rose far above what it had reached, and stayed there to the end."""
    points = segments(curve.loss)[-1]
    values = [point.value for point in points]
    if curve.game or len(values) < 12 or not all(isfinite(value) and value >= 0 for value in values):
        return None
    best = _lowest_window(points)
    limit = RISE * max(point.value for point in best)
    rise = _rise(points, points.index(best[-1]), limit)
    if rise is None or median(values[rise:]) < 0.25 * median(values[:3]):
        return None  # Of a loss that came down a hundredfold the noise is manifold too.
    low = min(best, key=lambda point: point.value)
    told = {"low": said(low.value), "low_place": place(low), "high": said(median(values[rise:]))}
    told.update(place=place(points[rise]), last_place=place(points[-1]))
    return Symptom("loss-divergence", told, tuple(dict.fromkeys((points[rise].line, low.line, points[-1].line))))


def _lowest_window(points: list[Point]) -> list[Point]:
    width = max(5, len(points) // 10)
    windows = [points[at : at + width] for at in range(len(points) - width + 1)]
    return min(windows, key=lambda window: median([point.value for point in window]))


def _rise(points: list[Point], start: int, limit: float) -> int | None:
    """From where on the loss lies above the limit: always, or mostly and then far above it."""
    values = [point.value for point in points]
    high = [at for at in range(start + 1, len(values)) if values[at] > limit]
    if not high or len(values) - high[0] < NEAR:
        return None
    tail = values[high[0] :]
    least = list(accumulate(reversed(values), min))[::-1]
    always = next((at for at in high if least[at] > limit), None)
    if always is not None and len(values) - always >= NEAR:
        return always
    return high[0] if len(high) >= 0.7 * len(tail) and median(tail) > 10 * limit else None


def zero_loss(curve: Curve, log: Log) -> Symptom | None:
    """A loss of exactly 0 to the end: from the start on, or from one reading to the next."""
    points = [point for point in curve.loss if point.finite]
    count = 0
    while count < len(points) and points[-1 - count].value == 0:
        count += 1
    if curve.game or count < STAYS:
        return None
    first = points[-count]
    if count == len(points):
        return Symptom("loss-zero", {"count": str(count), "place": place(first)}, (first.line, points[-1].line))
    last = points[-count - 1]
    if last.value < 0.05:  # It may have come down to what the logger rounds to 0.
        return None
    values = {"count": str(count), "place": place(first), "last": said(last.value), "last_place": place(last)}
    return Symptom("loss-zero", values, (first.line, last.line, points[-1].line))


def norm_adds_up(curve: Curve, log: Log) -> Symptom | None:
    """The gradient norm grows by the same amount in every step from the first: gradients are added to the old ones."""
    points = [point for point in segments(curve.norms)[-1] if point.finite]
    values = [point.value for point in points]
    if len(values) < 8 or not _from_start(points) or min(values) <= 0 or values[-1] < 5 * values[0]:
        return None
    steps = [after - before for before, after in pairwise(values)]
    usual = (values[-1] - values[0]) / len(steps)
    if any(step <= 0 for step in steps) or max(steps) > 3 * usual or values[0] > 3 * usual:
        return None
    told = {"first": said(values[0]), "first_place": place(points[0]), "last": said(values[-1]),
            "last_place": place(points[-1]), "count": str(len(values))}  # fmt: skip
    return Symptom("no-zero-grad", told, (points[-1].line, points[0].line, points[len(points) // 2].line))


def flat(curve: Curve, log: Log) -> Symptom | None:
    """The loss did not move from the start on: equal numbers, no gradient, or the level of guessing."""
    points = [point for point in segments(curve.loss)[-1] if point.finite]
    values = [point.value for point in points]
    if curve.game or len(values) < 8 or min(values) <= 0.05 or _still_warming(curve):
        return None
    told = {"count": str(len(values)), "first": said(values[0]), "last": said(values[-1]),
            "first_place": place(points[0]), "last_place": place(points[-1])}  # fmt: skip
    lines = (points[0].line, points[len(points) // 2].line, points[-1].line)
    if _no_gradient(curve):
        return Symptom("loss-flat-frozen", {**told, "norm": "0"}, lines)
    if len(values) >= 10 and max(values) - min(values) <= 2e-4 * median(values):
        return Symptom("loss-flat-frozen", told, lines)
    classes = _classes_of(median(values), log)
    if classes is None or not _from_start(points) or not _level(points):
        return None
    return Symptom("loss-flat-frozen", {**told, "classes": str(classes), "guess": said(_ln(classes))}, lines)


def _no_gradient(curve: Curve) -> bool:
    return len(curve.norms) >= STAYS and all(point.value == 0 for point in curve.norms)


def _level(points: list[Point]) -> bool:
    """No trend and little noise, over enough readings: of steps more than of whole epochs."""
    values = [point.value for point in points]
    middle, third = median(values), len(values) // 3
    trend = abs(median(values[:third]) - median(values[-third:]))
    spread = median([abs(value - middle) for value in values])
    whole_epochs = all(point.step is None and point.epoch is not None for point in points)
    enough = len(values) >= (10 if whole_epochs else 30)
    return enough and trend <= 0.005 * middle and spread <= 0.02 * middle


def _from_start(points: list[Point]) -> bool:
    """Do the readings begin where the training does? A piece of a log may show a level that was reached long ago."""
    first = points[0]
    if first.epoch is not None and first.epoch > 1:
        return False
    counts = [point.step for point in points if point.step is not None]
    if len(counts) < 2:
        return first.epoch is not None
    return counts[0] <= max(1, 2 * median([float(after - before) for before, after in pairwise(counts)]))


def _still_warming(curve: Curve) -> bool:
    rates = [point.value for point in curve.rates]
    return len(rates) > 2 and rates[-1] > rates[0] and all(after >= before for before, after in pairwise(rates))


def _classes_of(level: float, log_: Log) -> int | None:
    """The number of classes for which this is the loss of a guess: one that the text tells, or a usual one."""
    told = {int(found[1]) for line in log_.lines if (found := CLASSES.search(line.text)) and int(found[1]) > 1}
    near = [each for each in (told or USUAL_CLASSES) if abs(level - _ln(each)) <= 0.01 * _ln(each)]
    return near[0] if near else None


def _ln(classes: int) -> float:
    return log(classes)


def counted_twice(curve: Curve, log: Log) -> Symptom | None:
    """The loss of training is as many times that of the evaluation as gradients are accumulated."""
    marks = [(line, found) for line in log.lines if (found := ACCUMULATION.search(line.text))]
    count = int(marks[0][1]["count"]) if marks else 1
    if curve.game or count < 2:
        return None
    pairs = _with_training(curve)
    if not pairs:
        return None
    ratios = [own.value / each.value for own, each in pairs if each.value > 0.05]
    if not ratios or len(ratios) < len(pairs) or any(abs(ratio - count) > 0.15 * count for ratio in ratios):
        return None
    train, evaluated = pairs[-1]
    told = {"accumulated": str(count), "ratio": f"{ratios[-1]:.3g}"}
    told.update(train=said(train.value), eval=said(evaluated.value))
    return Symptom("accumulation-loss-scaling", told, (train.line, evaluated.line, marks[0][0]))


def _with_training(curve: Curve) -> list[tuple[Point, Point]]:
    """Each evaluated loss with the training's that stands before it or on its line."""
    points = [point for point in curve.loss if point.finite]
    orders = [point.line.order for point in points]
    found = [(bisect_right(orders, each.line.order), each) for each in curve.evaluated if each.finite]
    return [(points[at - 1], each) for at, each in found if at > 0]


CHECKS: tuple[Check, ...] = (
    nan_loss,
    scale_at_minimum,
    norm_not_finite,
    jump_after_resume,
    zero_loss,
    norm_adds_up,
    diverged,
    counted_twice,
    flat,
)
