"""The first stage for large inputs: which lines are worth the careful reader.

A line's shape is what is left of it without digits and punctuation. A training log of gigabytes has few shapes, and a
shape that stood in many blocks carries no news. The careful reader gets the head, every line of a rare shape with its
surroundings, and the tail; of the rest only the line ends are counted. Small inputs are read whole.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from firstfault.logs.lines import Piece, frames

SMALL = 4 << 20
AROUND = 40
# A shape that stood in this many blocks is common; 256 KiB a block.
COMMON = 8
KEPT_LINES = 200_000
LONGEST_BLOCK = 1 << 20
DROPPED = b"0123456789.,-+/|%#<>[](){}_ \t" + bytes(range(0x80, 0x100))


class Counter:
    """What one source held: bytes read, and lines as ``wc -l`` counts them, an unfinished last one included."""

    def __init__(self) -> None:
        self.bytes = 0
        self.lines = 0


class Block(NamedTuple):
    """Whole lines, the first of which has this number."""

    number: int
    data: bytes


def worth_reading(chunks: Iterable[tuple[bytes, int]], counter: Counter) -> Iterator[Piece]:
    """All pieces of a small input; of a large one its head, what is rare with its surroundings, and its tail."""
    seen: dict[bytes, int] = {}
    cold: deque[Block] = deque(maxlen=2)
    kept = 0
    for block in _blocks(chunks, counter):
        rare = _rare_shapes(block, seen) if kept < KEPT_LINES else set()
        if counter.bytes <= SMALL:
            yield from _pieces(block, None)
            continue
        if not rare:
            cold.append(block)
            continue
        wanted = _around(block, rare)
        kept += len(wanted)
        if cold and min(wanted) < AROUND:
            yield from _last_lines(cold[-1], AROUND)
        cold.clear()
        yield from _pieces(block, wanted)
    for block in cold:
        yield from _pieces(block, None)


def _blocks(chunks: Iterable[tuple[bytes, int]], counter: Counter) -> Iterator[Block]:
    """The chunks again, cut at line ends. A line of megabytes is cut where it is."""
    number, rest = 1, b""
    for data, size in chunks:
        counter.bytes += size
        data = rest + data
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) > LONGEST_BLOCK:
            end = len(data)
        rest = data[end:]
        if end:
            yield Block(number, data[:end])
            number += data.count(b"\n", 0, end)
    if rest:
        yield Block(number, rest)
    counter.lines = number if rest else number - 1


def _rare_shapes(block: Block, seen: dict[bytes, int]) -> set[bytes]:
    rare = set()
    for shape in set(block.data.translate(None, DROPPED).splitlines()):
        count = seen.get(shape, 0)
        if count < COMMON:
            rare.add(shape)
            if count or len(seen) < 100_000:
                seen[shape] = count + 1
    rare.discard(b"")
    return rare


def _around(block: Block, rare: set[bytes]) -> set[int]:
    """Offsets within the block of the lines to read: those of rare shapes and their neighbours."""
    wanted: set[int] = set()
    for at, line in enumerate(block.data.split(b"\n")):
        if any(shape in rare for shape in line.translate(None, DROPPED).split(b"\r")):
            wanted.update(range(max(at - AROUND, 0), at + AROUND + 1))
    return wanted or {0}


def _last_lines(block: Block, count: int) -> Iterator[Piece]:
    total = block.data.count(b"\n")
    yield from _pieces(block, set(range(max(total - count, 0), total)))


def _pieces(block: Block, wanted: set[int] | None) -> Iterator[Piece]:
    lines = block.data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for at, line in enumerate(lines):
        if wanted is None or at in wanted:
            yield from frames(block.number + at, line.decode("utf-8", "replace"))
