"""The first stage for large inputs: which lines are worth the careful reader.

A line's shape is what is left of it without digits and punctuation. A training log of gigabytes has few shapes, and a
shape that stood in many blocks carries no news; blocks that hold only such shapes are neither decoded nor walked.
The careful reader gets the head and the tail, the first lines of each shape with their surroundings, and the first and
the last ones of each shape that can hold a literal of a signature, however common it is. What one job keeps is bounded;
of all other lines only the ends are counted. A job that is small as a whole is read whole.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from firstfault.logs.lines import Piece, frames

if TYPE_CHECKING:
    from firstfault.logs.shapes import Shapes

# A job of this many bytes is read whole.
SMALL = 1 << 20
LONGEST_BLOCK = 1 << 20
# What the lines that a large job keeps may cost (see ``kept.cost``). A file may take half of what is left.
JOB_COST = 30_000


class Job:
    """What the files of one job share: the shapes that they hold, and how many lines may still be kept."""

    def __init__(self) -> None:
        self.bytes = 0
        self.left = JOB_COST
        self.large_files = 0
        self.shapes: Shapes | None = None


class Counter:
    """What one source held: bytes read, and lines as ``wc -l`` counts them, an unfinished last one included."""

    def __init__(self, job: Job | None = None) -> None:
        self.job = job or Job()
        self.bytes = 0
        self.lines = 0


def worth_reading(chunks: Iterable[tuple[bytes, int]], counter: Counter) -> Iterator[Piece]:
    """All pieces of a small job; of a large one what its source has to tell."""
    job = counter.job
    before, held = job.bytes, list[bytes]()
    blocks = _cut(chunks, counter)
    for data in blocks:
        held.append(data)
        if before + counter.bytes > SMALL:
            break
    job.bytes += counter.bytes
    if before + counter.bytes <= SMALL:
        yield from _whole(held, counter)
    else:
        yield from _selected(_drained(held, blocks), counter)
    job.bytes = before + counter.bytes


def _cut(chunks: Iterable[tuple[bytes, int]], counter: Counter) -> Iterator[bytes]:
    """The chunks again, cut at line ends or, where there is none, behind a frame. A line of megabytes is cut."""
    rest = b""
    for data, size in chunks:
        counter.bytes += size
        data = rest + data if rest else data
        end = data.rfind(b"\n") + 1 or data.rfind(b"\r") + 1
        if end == 0 and len(data) > LONGEST_BLOCK:
            end = len(data)
        rest = data[end:]
        if end:
            yield data[:end]
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
    from firstfault.logs.shapes import DROPPED, Shapes

    job = counter.job
    shapes = job.shapes = job.shapes or Shapes()
    kept = Kept(job.left // 2, job.large_files)
    job.large_files += 1
    number, frame, last = 1, 0, b""
    for data in datas:
        stripped = data.translate(None, DROPPED)
        own = stripped.splitlines()
        kept.take(Block(number, frame, data, own), shapes.news(own))
        number, frame = number + stripped.count(b"\n"), frame + len(own) + 1
        last = data
    counter.lines = number - 1 if last.endswith(b"\n") else number
    yield from kept.pieces()
    job.left = max(job.left - kept.spent, 0)
