"""Documents stay in step with the editor, whatever characters they hold and however the positions are counted."""

import random

import pytest
from lsprotocol import types

from firstfault.lsp.documents import Document
from firstfault.text import Position, Span

UTF8, UTF16, UTF32 = "utf-8", "utf-16", "utf-32"


def document(text: str, encoding: str = UTF16) -> Document:
    return Document(types.TextDocumentItem(uri="untitled:a", language_id="python", version=1, text=text), encoding)


def change(start: tuple[int, int], end: tuple[int, int], text: str) -> types.TextDocumentContentChangePartial:
    place = types.Range(start=types.Position(*start), end=types.Position(*end))
    return types.TextDocumentContentChangePartial(range=place, text=text)


@pytest.mark.parametrize(("encoding", "column"), [(UTF8, 10), (UTF16, 7), (UTF32, 6)])
def test_columns_count_in_the_units_that_were_agreed_on(encoding: str, column: int) -> None:
    # a, e with an accent, a rocket beyond the basic plane: 1, 2 and 4 bytes in UTF-8; 1, 1 and 2 units in UTF-16.
    text = document('x="aé🚀"', encoding)
    assert text.position(Position(1, 7)).character == column
    assert text.offset(types.Position(0, column)) == 6


def test_a_position_inside_of_a_pair_of_surrogates_does_not_split_it() -> None:
    assert document("🚀x").offset(types.Position(0, 1)) == 1


def test_lines_end_where_the_editor_ends_them() -> None:
    text = document("a\x0cb\u2028c\nd\re\r\nf")
    assert text.line_count == 4
    assert [text.line(number) for number in (1, 2, 3, 4)] == ["a\x0cb\u2028c", "d", "e", "f"]


@pytest.mark.parametrize(
    ("text", "edit", "expected"),
    [
        ("a\r\nb\r\n", change((0, 1), (1, 0), ""), "ab\r\n"),
        ("a\r\nb", change((0, 9), (0, 9), "!"), "a!\r\nb"),  # beyond the line's end: before its line end
        ("ab", change((0, 9), (0, 9), "!"), "ab!"),
        ("ab\n", change((1, 0), (1, 0), "c"), "ab\nc"),
        ("ab\n", change((7, 3), (9, 0), "c"), "ab\nc"),  # beyond the text's end: at its end
        ("🚀a🚀\n", change((0, 2), (0, 3), "bc"), "🚀bc🚀\n"),
        ("", change((0, 0), (0, 0), "x"), "x"),
        ("x = '\x0c'\ny\n", change((1, 0), (1, 1), "z"), "x = '\x0c'\nz\n"),
    ],
)
def test_edits_land_where_the_editor_made_them(text: str, edit: types.TextDocumentContentChangePartial, expected: str):
    edited = document(text)
    edited.change(2, [edit])
    assert (edited.text, edited.version) == (expected, 2)


def test_several_changes_apply_one_after_the_other() -> None:
    edited = document("abc")
    edited.change(2, [change((0, 0), (0, 1), ""), change((0, 0), (0, 1), "B"), change((0, 2), (0, 2), "\n")])
    assert edited.text == "Bc\n"


def test_a_whole_text_replaces_everything() -> None:
    edited = document("abc")
    edited.change(5, [types.TextDocumentContentChangeWholeDocument(text="x\ny")])
    assert (edited.text, edited.line_count) == ("x\ny", 2)


@pytest.mark.parametrize("encoding", [UTF8, UTF16, UTF32])
def test_positions_go_there_and_back(encoding: str) -> None:
    rng = random.Random(7)
    for _ in range(200):
        text = document("".join(rng.choice("aé€🚀\n\r\t") for _ in range(rng.randrange(30))), encoding)
        for line in range(1, text.line_count + 1):
            for column in range(1, len(text.line(line)) + 2):
                place = text.position(Position(line, column))
                assert text.place(text.offset(place)) == Position(line, column)


def test_places_outside_of_the_text_are_moved_inside() -> None:
    text = document("ab\ncd")
    assert text.range(Span(Position(2, 99), Position(9, 1))) == types.Range(types.Position(1, 2), types.Position(1, 2))
    assert text.line_range(99) == types.Range(types.Position(1, 0), types.Position(1, 2))


def test_the_range_of_a_line_leaves_out_the_blanks_around_it() -> None:
    assert document("a\n    b = 1  \n").line_range(2) == types.Range(types.Position(1, 4), types.Position(1, 9))
