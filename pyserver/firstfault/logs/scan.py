"""The first stage for large inputs: which lines are worth the careful reader.

A line's shape is what is left of it without digits and punctuation. A training log of gigabytes has few shapes, and a
shape that stood in many blocks carries no news; blocks that hold only such shapes are neither decoded nor walked.
The careful reader gets the head and the tail, the first lines of each shape with their surroundings, and the first and
the last ones of each shape that can hold a literal of a signature, however common it is, and a sample of the lines with
a loss. What one job keeps is bounded; of all other lines only the ends are counted. A small job is read whole.
"""

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from firstfault.logs.lines import Piece, frames
from firstfault.logs.source import Source

if TYPE_CHECKING:
    from firstfault.logs.shapes import Shapes

# A job of this many bytes is read whole.
SMALL = 1 << 20
LONGEST_BLOCK = 1 << 20
# What the lines that a large job keeps may cost (see ``kept.cost``). A file may take half of what is left.
JOB_COST = 30_000
# How many lines of metrics are kept of the first large file, and of each of many.
SAMPLES, FEWEST_SAMPLES = 256, 8


class Job:
    """What the files of one job share: the shapes that they hold, and how many lines may still be kept.

    Given all its sources it knows from the start whether it is large.
    """

    def __init__(self, sources: Iterable[Source] = ()) -> None:
        self.expected = sum(_size(source) for source in sources)
        self.bytes = 0
        self.left = JOB_COST
        self.large_files = 0
        self.shapes: Shapes | None = None


def _size(source: Source) -> int:
    return os.path.getsize(source.path) if source.path and os.path.isfile(source.path) else 0


class Counter:
    """What one source held: bytes read, and lines as ``wc -l`` counts them, an unfinished last one included."""

    def __init__(self, job: Job | None = None) -> None:
        self.job = job or Job()
        self.bytes = 0
        self.lines = 0


def worth_reading(chunks: Iterable[tuple[bytes, int]], counter: Counter) -> Iterator[Piece]:
    """All pieces of a small job; of a large one what its source has to tell."""
    job = counter.job
    held = list[bytes]()
    blocks = _cut(chunks, counter)
    for data in blocks:
        held.append(data)
        if max(job.expected, job.bytes + counter.bytes) > SMALL:
            break
    if max(job.expected, job.bytes + counter.bytes) <= SMALL:
        yield from _whole(held, counter)
    else:
        yield from _selected(_drained(held, blocks), counter)
    job.bytes += counter.bytes


def _cut(chunks: Iterable[tuple[bytes, int]], counter: Counter) -> Iterator[bytes]:
    """The chunks again, cut at line ends or, where there is none, behind a frame. A line of megabytes is cut."""
    rest = b""
    for data, size in chunks:
        counter.bytes += size
        end = data.rfind(b"\n") + 1 or data.rfind(b"\r") + 1
        if end == 0 and len(rest) + len(data) > LONGEST_BLOCK:
            end = len(data)
        block = b"".join((rest, memoryview(data)[:end])) if end else b""
        rest = data[end:] if end else rest + data
        if block:
            yield block
    if rest:
        yield rest


def _whole(held: list[bytes], counter: Counter) -> Iterator[Piece]:
    number = 1
    for data in held:
        lines = data.split(b"\n")
        for at, line in enumerate(lines if lines[-1] else lines[:-1], start=number):
            yield from frames(at, line.decode("utf-8", "replace"))
        number += len(lines) - 1
    counter.lines = number if held and not held[-1].endswith(b"\n") else number - 1


def _drained(held: list[bytes], more: Iterator[bytes]) -> Iterator[bytes]:
    while held:
        yield held.pop(0)
    yield from more


def _selected(datas: Iterator[bytes], counter: Counter) -> Iterator[Piece]:
    from firstfault.logs.kept import Block, Kept
    from firstfault.logs.sampler import Sampler
    from firstfault.logs.shapes import DROPPED, Shapes

    job = counter.job
    shapes = job.shapes = job.shapes or Shapes()
    kept = Kept(job.left // 2, job.large_files)
    sampler = Sampler(max(SAMPLES // (1 + job.large_files), FEWEST_SAMPLES))
    job.large_files += 1
    number, place, last = 1, 0, b""
    for data in datas:
        stripped = data.translate(None, DROPPED)
        news = shapes.news(stripped)
        kept.take(Block(number, place, data), news)
        sampler.look(news)
        sampler.take(place, number, data)
        number, place = number + stripped.count(b"\n"), place + len(data)
        last = data
    counter.lines = number - 1 if last.endswith(b"\n") else number
    kept.add(sampler.samples())
    yield from kept.pieces()
    job.left = max(job.left - kept.spent, 0)
