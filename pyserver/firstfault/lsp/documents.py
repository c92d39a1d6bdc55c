"""The open documents, kept in step with the editor.

Positions of the protocol count lines from 0 and columns in the code units that client and server agreed on; lines end
at ``\\n``, ``\\r\\n`` and ``\\r`` and nowhere else. (``str.splitlines`` also breaks at form feeds and other characters,
which Python sources do hold; a document synchronised with it drifts away from the editor.)
"""

import logging
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from lsprotocol import types

from firstfault.text import LineTable, Position, Span

logger = logging.getLogger(__name__)


class Document:
    """One open text at one version."""

    def __init__(self, item: types.TextDocumentItem, encoding: str) -> None:
        self.uri = item.uri
        self.version = item.version
        self.language = item.language_id
        self.text = item.text
        self._encoding = encoding
        self._table: LineTable | None = None

    @property
    def line_count(self) -> int:
        return len(self._lines.starts)

    @property
    def eol(self) -> str:
        return "\r\n" if "\r\n" in self.text[: 1 << 16] else "\n"

    def change(self, version: int, changes: Sequence[types.TextDocumentContentChangeEvent]) -> None:
        for change in changes:
            self.text = self._changed(change)
            self._table = None
        self.version = version

    def offset(self, position: types.Position) -> int:
        """The offset of a client's position; what lies outside of the text is moved to the nearest place inside."""
        starts = self._lines.starts
        if position.line >= len(starts):
            return len(self.text)
        start = starts[position.line]
        line = self._line(position.line)
        return start + _characters(line, position.character, self._encoding)

    def range(self, span: Span) -> types.Range:
        return types.Range(start=self.position(span.start), end=self.position(span.end))

    def position(self, position: Position) -> types.Position:
        """A client's position for ours; what lies outside of the text is moved to the nearest place inside."""
        line = min(position.line, self.line_count) - 1
        if position.line > self.line_count:
            return types.Position(line=line, character=_units(self._line(line), self._encoding))
        return types.Position(line=line, character=_units(self._line(line)[: position.column - 1], self._encoding))

    def line_range(self, line: int) -> types.Range:
        """The whole of a line, counted from 1, without the blanks around it."""
        index = min(max(line, 1), self.line_count) - 1
        text = self._line(index)
        start = len(text) - len(text.lstrip())
        end = max(start, len(text.rstrip()))
        return self.range(Span(Position(index + 1, start + 1), Position(index + 1, end + 1)))

    def line(self, line: int) -> str:
        """A line, counted from 1, without its end."""
        return self._line(line - 1)

    def place(self, offset: int) -> Position:
        line = bisect_right(self._lines.starts, offset)
        return Position(line, offset - self._lines.starts[line - 1] + 1)

    @property
    def _lines(self) -> LineTable:
        if self._table is None:
            self._table = LineTable(self.text)
        return self._table

    def _line(self, index: int) -> str:
        starts = self._lines.starts
        end = starts[index + 1] if index + 1 < len(starts) else len(self.text)
        return self.text[starts[index] : end].rstrip("\r\n")

    def _changed(self, change: types.TextDocumentContentChangeEvent) -> str:
        if isinstance(change, types.TextDocumentContentChangeWholeDocument):
            return change.text
        start, end = self.offset(change.range.start), self.offset(change.range.end)
        return self.text[:start] + change.text + self.text[max(start, end) :]


class Documents:
    """The open documents by their URI."""

    def __init__(self) -> None:
        self.encoding: str = types.PositionEncodingKind.Utf16
        self._open: dict[str, Document] = {}

    def __iter__(self) -> Iterator[Document]:
        return iter(list(self._open.values()))

    def get(self, uri: str) -> Document | None:
        return self._open.get(uri)

    def open(self, item: types.TextDocumentItem) -> Document:
        self._open[item.uri] = Document(item, self.encoding)
        return self._open[item.uri]

    def change(self, params: types.DidChangeTextDocumentParams) -> Document | None:
        document = self._open.get(params.text_document.uri)
        if document is None:
            logger.warning("A change of a document that is not open: %s", params.text_document.uri)
            return None
        document.change(params.text_document.version, params.content_changes)
        return document

    def close(self, uri: str) -> None:
        self._open.pop(uri, None)


def _units(text: str, encoding: str) -> int:
    """How long the text is in the code units of the encoding."""
    if text.isascii() or encoding == types.PositionEncodingKind.Utf32:
        return len(text)
    if encoding == types.PositionEncodingKind.Utf8:
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text) + sum(character > "\uffff" for character in text)


def _characters(line: str, units: int, encoding: str) -> int:
    """How many characters of the line lie before the given number of code units."""
    if line.isascii() or encoding == types.PositionEncodingKind.Utf32:
        return min(units, len(line))
    seen = 0
    for index, character in enumerate(line):
        if seen >= units:
            return index
        seen += _units(character, encoding)
    return len(line)
