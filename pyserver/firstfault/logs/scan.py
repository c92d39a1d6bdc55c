"""The first stage for large inputs: which lines are worth the careful reader.

A line's shape is what is left of it without digits and punctuation. A training log of gigabytes has few shapes; a
shape that was seen often enough carries no news. What the careful reader gets is: the head, every line whose shape is
rare, with its surroundings, and the tail. Small inputs are read whole.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Protocol

from firstfault.logs.lines import Piece

SMALL = 4 << 20
HEAD_LINES = 2000
TAIL_LINES = 4000
AROUND = 40
COMMON = 64
KEPT_LINES = 200_000
_DROP = str.maketrans("", "", "0123456789.,-+/|%#<>[](){}\u2588\u258f\u258e\u258d\u258c\u258b\u258a\u2589 \t")


class Progress(Protocol):
    bytes: int


def worth_reading(pieces: Iterable[Piece], read: Progress) -> Iterator[Piece]:
    """All pieces of a small input; of a large one those around rare shapes, and its two ends."""
    seen: dict[str, int] = {}
    before: deque[Piece] = deque(maxlen=AROUND)
    tail: deque[Piece] = deque(maxlen=TAIL_LINES)
    after = kept = count = 0
    for piece in pieces:
        count += 1
        if count <= HEAD_LINES or read.bytes <= SMALL:
            yield piece
            continue
        if kept < KEPT_LINES and _is_rare(piece.raw, seen):
            yield from before
            yield piece
            kept += 1 + len(before)
            before.clear()
            after = AROUND
        elif after > 0:
            after -= 1
            yield piece
        else:
            if len(before) == AROUND:
                tail.append(before[0])
            before.append(piece)
            continue
        tail.clear()
    yield from tail
    yield from before


def _is_rare(raw: str, seen: dict[str, int]) -> bool:
    shape = raw[:400].translate(_DROP)
    count = seen.get(shape, 0) + 1
    if count > 1 or len(seen) < 100_000:
        seen[shape] = count
    return count <= COMMON
