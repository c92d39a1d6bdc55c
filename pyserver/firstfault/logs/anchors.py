"""Which literals stand in which shapes, found quickly: one pattern over short, rare pieces of all literals.

A literal that is in a line is, stripped, in the line's stripped shape. Each stripped literal is represented by its
anchor, a piece that starts with a byte which logs seldom hold; the anchors of hundreds of literals form one pattern.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

ANCHOR = 8
# Bytes of logs, the most frequent first; what is not listed (capitals, most signs) is seldom.
FREQUENT = b"etaoisnrlcdpumhgfbyw:vk'=x"
SHORTEST = 4

Trie = dict[int, "Trie"]


class Held(NamedTuple):
    """A literal, what is left of it in a shape, and where its anchor starts therein."""

    literal: bytes
    stripped: bytes
    anchor: int

    def stands(self, text: bytes, at: int) -> bool:
        """Does it stand in the text so that its anchor is at this place?"""
        return at >= self.anchor and text.startswith(self.stripped, at - self.anchor)


class Anchors:
    """Finds the literals of shapes. ``drop`` holds the bytes that a shape lacks."""

    def __init__(self, literals: Iterable[bytes], drop: bytes) -> None:
        self._by_anchor: dict[bytes, list[Held]] = {}
        for literal in sorted(set(literals)):
            stripped = literal.translate(None, drop)
            if stripped:
                at = _anchor(stripped)
                self._by_anchor.setdefault(stripped[at : at + ANCHOR], []).append(Held(literal, stripped, at))
        for anchor in sorted(self._by_anchor, key=len):
            self._add_shorter(anchor)
        self._search = re.compile(_pattern(_trie(self._by_anchor))).search

    def found(self, shapes: Iterable[bytes]) -> dict[bytes, tuple[bytes, ...]]:
        """The shapes that hold a literal, each with the literals that its lines may hold."""
        found: dict[bytes, tuple[bytes, ...]] = {}
        text = b"\n".join(shapes)
        start, end, held = 0, -1, set[bytes]()
        match = self._search(text)
        while match:
            at = match.start()
            if at > end:
                if held:
                    found[text[start:end]] = tuple(sorted(held))
                start, end, held = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at), set()
                end = end if end >= 0 else len(text)
            held.update(each.literal for each in self._by_anchor[match[0]] if each.stands(text, at))
            match = self._search(text, at + 1)
        if held:
            found[text[start:end]] = tuple(sorted(held))
        return found

    def _add_shorter(self, anchor: bytes) -> None:
        """Where an anchor matched, those that are its beginning match too; the pattern tells only the longest."""
        for size in range(1, len(anchor)):
            self._by_anchor[anchor] += [
                each for each in self._by_anchor.get(anchor[:size], ()) if each not in self._by_anchor[anchor]
            ]


def _anchor(stripped: bytes) -> int:
    """Where the anchor starts: at the most seldom byte, so that few places of a text are tried."""
    starts = range(max(len(stripped) - SHORTEST + 1, 1))
    return min(starts, key=lambda start: [_frequency(byte) for byte in stripped[start : start + 2]])


def _frequency(byte: int) -> int:
    return len(FREQUENT) - FREQUENT.find(byte) if byte in FREQUENT else 0


def _trie(words: Iterable[bytes]) -> Trie:
    root: Trie = {}
    for word in words:
        node = root
        for byte in word:
            node = node.setdefault(byte, {})
        node[-1] = {}  # A word ends here.
    return root


def _pattern(node: Trie) -> bytes:
    branches = [re.escape(bytes([byte])) + _pattern(below) for byte, below in node.items() if byte >= 0]
    if not branches:
        return b""
    ended = b"?" if -1 in node else b""
    return b"(?:" + b"|".join(branches) + b")" + ended
