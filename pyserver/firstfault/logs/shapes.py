"""The shapes of a large log: which are common, and which can hold a literal of a signature.

A line's shape is what is left of it without digits, spaces and most signs. Shapes merge lines that differ in numbers
only, so they are a gate and never the answer: what a hot shape's line holds is tested on the line itself.
"""

from collections.abc import Iterable

from firstfault.library import load
from firstfault.logs.anchors import Anchors

DROPPED = b"0123456789.,-+/|%#<>[](){}_ \t" + bytes(range(0x80, 0x100))
# A shape that stood in this many blocks is common.
COMMON = 8
# So many lines with a literal, or some in that many blocks, and a shape's next ones are no news.
MANY, SOME, BLOCKS = 512, 16, 16
# How many shapes are remembered, and how long they may be; what is forgotten is news when it comes again.
REMEMBERED, LONGEST_SHAPE = 20_000, 1024
# The reader's own words, besides the literals of the signatures.
WORDS = (b"Traceback (most recent call last)", b"Fatal Python error", b"terminate called", b"Error: ", b"exitcode  : ")


class Hot:
    """A shape whose lines may hold these literals; ``count`` lines did, in some of ``blocks``."""

    def __init__(self, literals: tuple[bytes, ...]) -> None:
        self.literals = literals
        self.count = 0
        self.blocks = 0

    def is_in(self, line: bytes) -> bool:
        return any(literal in line for literal in self.literals)

    def is_frequent(self) -> bool:
        return self.count >= MANY or (self.count >= SOME and self.blocks >= BLOCKS)

    def is_mistaken(self) -> bool:
        """No line of many blocks held a literal. One with digits may still come: shapes do not tell them apart."""
        return self.blocks > COMMON and not self.count and not any(map(_has_digit, self.literals))


class Shapes:
    def __init__(self, literals: Iterable[bytes] | None = None) -> None:
        self._common = {b""}
        self._hot: dict[bytes, Hot] = {}
        self._counts: dict[bytes, int] = {}
        self._anchors = Anchors(_literals() if literals is None else literals, DROPPED)

    def news(self, stripped: bytes) -> dict[bytes, Hot | None]:
        """The shapes of a block that are not common, those that can hold a literal with what is known of it."""
        shapes = stripped.splitlines()
        if self._common.issuperset(shapes):
            return {}
        rare = set(shapes) - self._common
        new = [shape for shape in rare if shape not in self._hot and shape not in self._counts]
        if new:
            self._hot.update((shape, Hot(held)) for shape, held in self._anchors.found(new).items())
        news = {shape: self._hot.get(shape) for shape in rare}
        for shape, hot in news.items():
            self._count(shape, hot)
        self._forget(rare)
        return news

    def _count(self, shape: bytes, hot: Hot | None) -> None:
        if hot is None:
            self._counts[shape] = self._counts.get(shape, 0) + 1
        else:
            hot.blocks += 1
        if hot.is_mistaken() if hot else self._counts[shape] >= COMMON:
            self._common.add(shape)
            self._hot.pop(shape, None)
            self._counts.pop(shape, None)

    def _forget(self, latest: set[bytes]) -> None:
        """A text of which every line is new must not fill the memory."""
        for shape in latest:
            if len(shape) > LONGEST_SHAPE:
                self._common.discard(shape)
                self._hot.pop(shape, None)
                self._counts.pop(shape, None)
        if len(self._counts) > REMEMBERED:
            self._counts = {shape: count for shape, count in self._counts.items() if count > 2}
        if len(self._counts) > REMEMBERED // 2 or len(self._hot) > REMEMBERED // 4 or len(self._common) > REMEMBERED:
            self._counts, self._hot, self._common = {}, {}, {b""}


def _literals() -> list[bytes]:
    signatures = load().signatures.values()
    known = {literal.encode() for signature in signatures for match in signature.matches for literal in match.literal}
    return [*known, *WORDS]


def _has_digit(literal: bytes) -> bool:
    return any(byte in b"0123456789" for byte in literal)
