"""The lines of one large source that the careful reader gets, within a bound.

Kept are the head and the tail; the first lines of each shape with what stands near; lines with a literal of a signature
with much around them, the first ones and the last one of each shape.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from firstfault.logs.lines import LONGEST, Piece
from firstfault.logs.sampler import Sample
from firstfault.logs.shapes import DROPPED, MANY, Hot

# Of each file of many at least a few lines.
HEAD, TAIL, SHORT = 100, 200, 8
# Of each block the first lines of a rare shape, and how many lines near them.
FIRST, NEAR = 2, 3
# How many lines around one with a literal, by how often its shape has had one; after that only the last one counts.
AROUND = ((16, 40), (64, 20), (MANY, 3))
# The last lines with a literal: of how many shapes, in how many blocks.
LAST, LAST_BLOCKS = 128, 16
# Every file may keep this much, however little of the job's allowance is left.
LEAST = 64
ORDINARY_LENGTH = 200

# Lines by their place in the source: the number that they have, and the text or, of a very long one, parts of it.
Lines = dict[int, tuple[int, list[bytes]]]


class Block:
    """Whole lines, split only when somebody asks for them. Its place in the source is that of its first line."""

    def __init__(self, number: int, place: int, data: bytes) -> None:
        self.place = place
        self._data = data
        self._lines: list[bytes] = []
        self._shapes: list[bytes] = []
        # Of one line, the last that was asked for, the number; the others' are counted from there.
        self._known = (0, number)

    @property
    def lines(self) -> list[bytes]:
        """Each with its end."""
        if not self._lines:
            self._lines = self._data.splitlines(keepends=True)
        return self._lines

    @property
    def shapes(self) -> list[bytes]:
        """One for each line. Without what stood between them, a CR and an LF can have become one line end."""
        if not self._shapes:
            self._shapes = self._data.translate(None, DROPPED).splitlines()
        if len(self._shapes) != len(self.lines):
            self._shapes = [line.translate(None, DROPPED).rstrip(b"\r\n") for line in self.lines]
        return self._shapes

    def part(self, start: int, end: int) -> Lines:
        start, end = max(start, 0), min(end, len(self.lines))
        part, number = Lines(), self._number(start)
        for at in range(start, end):
            part[self.place + at] = number, _parts(self.lines[at].rstrip(b"\r\n"))
            number += self.lines[at].endswith(b"\n")
        return part

    def around(self, at: int, literals: tuple[bytes, ...]) -> Lines:
        """The line; of a very long one also what stands around its literals."""
        line = self.lines[at].rstrip(b"\r\n")
        parts = _parts(line)
        if len(parts) > 1:
            places = [place for place in map(line.find, literals) if place >= 0]
            parts[1:1] = [line[max(place - LONGEST // 4, 0) : place + LONGEST // 4] for place in places[:2]]
        return {self.place + at: (self._number(at), parts)}

    def last(self, shape: bytes, hot: Hot) -> int | None:
        """The last line of this shape that holds a literal."""
        shapes, lines = self.shapes, self.lines
        return next((at for at in reversed(range(len(lines))) if shapes[at] == shape and hot.is_in(lines[at])), None)

    def slim(self) -> None:
        """Keep the bytes only; the lines can be split again."""
        self._lines, self._shapes = [], []

    def _number(self, at: int) -> int:
        known, number = self._known
        step = b"".join(self.lines[min(at, known) : max(at, known)]).count(b"\n")
        self._known = at, number + (step if at > known else -step)
        return self._known[1]


class Kept:
    """``allowance`` is what the lines may cost; ``spent`` what they did, which can be a little more.

    The more ``files`` of the job came before, the less of head and tail is kept.
    """

    def __init__(self, allowance: int, files: int = 0) -> None:
        self.spent = 0
        self._allowance = max(allowance, LEAST)
        self._lines: Lines = {}
        # The last block of each shape whose lines hold literals, the latest at the end.
        self._last: dict[bytes, tuple[Block, Hot]] = {}
        self._left_for_last = max(self._allowance // 4, LEAST)
        self._before: deque[Block] = deque(maxlen=2)
        # Lines of the next block that stand near one of this block.
        self._after = max(HEAD // (1 + files), SHORT // 2)
        self._tail = max(TAIL // (1 + files), SHORT)

    def take(self, block: Block, news: dict[bytes, Hot | None]) -> None:
        after, self._after = self._after, 0
        if after:
            self._keep(self._near(block, -1, after))
        if self.spent * 2 >= self._allowance:
            news = {shape: hot for shape, hot in news.items() if hot is not None}
        settled = {shape: hot for shape, hot in news.items() if hot is not None and self._is_settled(hot)}
        if len(settled) < len(news):
            self._walk(block, {shape: hot for shape, hot in news.items() if shape not in settled})
        if settled:
            self._remember(block, settled)
        if len(self._before) == 2:
            self._before[0].slim()
        self._before.append(block)

    def add(self, samples: Iterable[Sample]) -> None:
        """Lines that another one chose; they are few, and cost nothing of the allowance."""
        for each in samples:
            self._lines.setdefault(each.place, (each.number, [each.line]))

    def pieces(self) -> Iterator[Piece]:
        """What was kept, in the order of the source."""
        for shape in list(reversed(self._last)):
            self._keep_last(shape)
        self._keep_tail()
        self._before.clear()
        for place in sorted(self._lines):
            number, parts = self._lines.pop(place)
            for part in parts:
                yield Piece(number, _decoded(part, len(parts) > 1))

    def _is_settled(self, hot: Hot) -> bool:
        """Of its lines with a literal enough is kept: from now on the last one counts."""
        return hot.count > 0 and (hot.is_frequent() or self.spent >= self._allowance)

    def _walk(self, block: Block, news: dict[bytes, Hot | None]) -> None:
        taken = dict.fromkeys(news, 0)
        shapes, lines = block.shapes, block.lines
        for at in [at for at, shape in enumerate(shapes) if shape in taken]:
            hot = news[shapes[at]]
            if hot is not None and hot.is_in(lines[at]):
                hot.count += 1
                self._keep_around(block, at, hot)
            elif taken[shapes[at]] < FIRST and self.spent * 2 < self._allowance:
                taken[shapes[at]] += 1
                self._keep(self._near(block, at, NEAR))
        self._remember(block, {shape: hot for shape, hot in news.items() if hot is not None and self._is_settled(hot)})

    def _keep_around(self, block: Block, at: int, hot: Hot) -> None:
        around = _around(hot.count)
        if around and self.spent < self._allowance:
            self._keep(self._near(block, at, around))
            self._keep(block.around(at, hot.literals))

    def _near(self, block: Block, at: int, around: int) -> Lines:
        """The line and those around it; what the next block holds of them is kept when it comes."""
        near: Lines = {}
        if self._before and at - around < 0:
            before = self._before[-1]
            near = before.part(len(before.lines) + at - around, len(before.lines))
        near.update(block.part(at - around, at + around + 1))
        self._after = max(self._after, at + around + 1 - len(block.lines))
        return near

    def _keep(self, lines: Lines) -> None:
        for place, line in lines.items():
            known = self._lines.get(place)
            if known is None or len(known[1]) < len(line[1]):
                self._lines[place] = line
                self.spent += _cost(line[1])

    def _remember(self, block: Block, hot: dict[bytes, Hot]) -> None:
        """Instead of walking every block that holds such a shape, only the last one is walked, at the end."""
        for shape in list(hot)[:LAST]:
            self._last.pop(shape, None)
            self._last[shape] = block, hot[shape]
        while len(self._last) > LAST or len({id(each) for each, _ in self._last.values()}) > LAST_BLOCKS:
            self._keep_last(next(iter(self._last)))

    def _keep_last(self, shape: bytes) -> None:
        block, hot = self._last.pop(shape)
        at = block.last(shape, hot)
        if at is not None and self._left_for_last > 0:
            spent, around = self.spent, AROUND[0][1] if self._allowance > LEAST * LAST else NEAR
            self._keep(block.part(at - around, at + around + 1))
            self._keep(block.around(at, hot.literals))
            self._left_for_last -= self.spent - spent

    def _keep_tail(self) -> None:
        left = self._tail
        while self._before and left > 0:
            block = self._before.pop()
            count = len(block.lines)
            self._keep(block.part(count - left, count))
            left -= count


def _around(count: int) -> int:
    return next((around for upto, around in AROUND if count <= upto), 0)


def _cost(parts: list[bytes]) -> int:
    return 1 + sum(map(len, parts)) // ORDINARY_LENGTH


def _parts(line: bytes) -> list[bytes]:
    """A line of usual length, or both ends of a longer one."""
    return [line] if len(line) <= LONGEST else [line[: LONGEST // 2], line[-LONGEST // 2 :]]


def _decoded(part: bytes, cut: bool) -> str:
    text = part.decode("utf-8", "replace")
    return text.strip("\ufffd") if cut else text
