"""A large log's curve in constant memory: of each block one line with a loss, and of those the ones that tell most.

The first stage drops lines of a common shape, and those of metrics are the most common of all. Here one of a block
stays, found near the block's start. Where there are too many, of each four neighbours the lowest and the highest are
kept: a spike, an end or a new level never gets lost, only what lies between.
"""

import math
import re
from typing import NamedTuple

MARK = re.compile(rb"[Ll]oss[\"' \])]{0,4}[:=| ]{0,12}[\"']?(-?\d[\d.]*(?:[eE][-+]?\d+)?|nan|NaN|-?inf)")
WORDS = (b"loss", b"Loss")
# How far from the block's start a line is looked for: a log of metrics has one within some lines.
REACH = 1 << 15
LONGEST = 4096


class Sample(NamedTuple):
    """A line by its place among the source's lines, its number, and the loss on it."""

    place: int
    number: int
    line: bytes
    loss: float


class Sampler:
    """``limit`` is about how many lines are kept of one source."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: list[Sample] = []
        self._seen = False

    def look(self, shapes: object) -> None:
        """Told of the shapes that are news: blocks are searched only after one of them held a loss."""
        if not self._seen and isinstance(shapes, dict):
            self._seen = any(word in shape for shape in shapes for word in WORDS)

    def take(self, place: int, number: int, data: bytes) -> None:
        found = MARK.search(data, 0, REACH) if self._seen else None
        if found is None:
            return
        start = max(data.rfind(b"\n", 0, found.start()), data.rfind(b"\r", 0, found.start())) + 1
        end = min(_end(data, found.end(), b"\n"), _end(data, found.end(), b"\r"))
        if end - start > LONGEST:
            return
        at = len(data[:start].splitlines())
        loss = float(found[1]) if found[1][-1:].isdigit() or found[1][-1:] == b"." else math.inf
        self._kept.append(Sample(place + at, number + data.count(b"\n", 0, start), data[start:end], loss))
        if len(self._kept) > 2 * self._limit:
            self._kept = [self._kept[0], *_thinned(self._kept[1:-1]), self._kept[-1]]

    def samples(self) -> list[Sample]:
        return self._kept


def _end(data: bytes, start: int, mark: bytes) -> int:
    end = data.find(mark, start)
    return end if end >= 0 else len(data)


def _thinned(samples: list[Sample]) -> list[Sample]:
    kept = []
    for start in range(0, len(samples), 4):
        four = samples[start : start + 4]
        extremes = {min(four, key=_loss), max(four, key=_loss)}
        kept += [each for each in four if each in extremes]
    return kept


def _loss(sample: Sample) -> float:
    return sample.loss
