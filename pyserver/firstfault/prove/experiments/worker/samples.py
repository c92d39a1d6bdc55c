"""The two sets of data: as ``batch(n)`` gives them, and a control whose micro-batches all count the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from firstfault.prove.experiments.worker.control import seed
from firstfault.prove.experiments.worker.data import check_rows, rows, with_equal_targets
from firstfault.prove.experiments.worker.protocol import Probe, ProbeFault, call


class Samples(NamedTuple):
    """One window's samples: whole, in equal parts, and whole in another order."""

    kind: str
    whole: Any
    parts: list[Any]
    reordered: Any
    listed: list[Any] | None = None  # before collate() has joined them


def variable(probe: Probe, count: int, parts: int) -> Samples:
    seed(0)
    return _cut(probe, "batch()", call("batch()", probe.batch, count), count, parts)


def controls(probe: Probe, given: Samples, count: int, parts: int, source: int = 0) -> Iterator[Samples]:
    """Candidates, the best first; whether one really equalises the denominator is for the caller to see.

    Targets are those of the micro-batch number ``source``: of one that has some.
    """
    if probe.uniform is not None:
        seed(0)
        yield _cut(probe, "uniform()", call("uniform()", probe.uniform, count), count, parts)
        return
    block = count // parts
    equal = _with_equal_targets(given.whole, count, block, source)
    if equal is not None:
        yield _by_rows("equal-targets", equal, count, parts)
    yield Samples("repeated", *_repeated(probe, given, count, parts, source))


def halves(samples: Samples, count: int) -> list[Any] | None:
    """The same samples in two parts, where they can be cut by rows."""
    if samples.listed is not None or count % 2:
        return None
    return [rows(samples.whole, range(at, at + count // 2), count) for at in (0, count // 2)]


def _cut(probe: Probe, name: str, batch: Any, count: int, parts: int) -> Samples:
    # A script's own collate() may stand in the probe while batch() calls it already.
    if probe.collate is None or not isinstance(batch, list) or len(batch) != count:
        check_rows(batch, count)
        return _by_rows(name, batch, count, parts)
    block = count // parts
    joined = [call("collate()", probe.collate, batch[at : at + block]) for at in range(0, count, block)]
    whole, back = (call("collate()", probe.collate, each) for each in (list(batch), list(reversed(batch))))
    return Samples(name, whole, joined, back, batch)


def _by_rows(name: str, batch: Any, count: int, parts: int) -> Samples:
    block = count // parts
    cut = [rows(batch, range(at, at + block), count) for at in range(0, count, block)]
    return Samples(name, batch, cut, rows(batch, range(count - 1, -1, -1), count))


def _with_equal_targets(whole: Any, count: int, block: int, source: int) -> Any:
    try:
        check_rows(whole, count)
    except ProbeFault:  # a collate() that packs: its batches have no rows
        return None
    return with_equal_targets(whole, count, block, source)


def _repeated(probe: Probe, given: Samples, count: int, parts: int, source: int) -> tuple[Any, list[Any], Any]:
    """One micro-batch again and again: equal in every way, so BatchNorm cannot be seen on it."""
    block = count // parts
    if given.listed is None or probe.collate is None:
        whole = rows(given.whole, [source * block + place % block for place in range(count)], count)
    else:
        samples = given.listed[source * block : (source + 1) * block]
        whole = call("collate()", probe.collate, samples * parts)
    return whole, [given.parts[source]] * parts, whole
