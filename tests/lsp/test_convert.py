"""URIs and paths, there and back."""

import pytest
from lsprotocol import types

from firstfault.lint.rule import Fix
from firstfault.lsp import convert
from firstfault.lsp.documents import Document
from firstfault.text import Edit, Position, Span


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///home/ada/train.py", "/home/ada/train.py"),
        ("file:///home/ada/my%20run/a%23b.py", "/home/ada/my run/a#b.py"),
        ("file:///home/ada/a;b.py", "/home/ada/a;b.py"),
        ("file:///%F0%9F%9A%80.py", "/🚀.py"),
        ("file:///c%3A/Users/Ada/train.py", "c:/Users/Ada/train.py"),
        ("file:///C:/Users/Ada/train.py", "c:/Users/Ada/train.py"),
        ("file://cluster/share/train.py", "//cluster/share/train.py"),
        ("file://localhost/train.py", "/train.py"),
        ("untitled:Untitled-1", None),
        ("http://[broken", None),
        ("", None),
    ],
)
def test_the_path_of_a_uri(uri: str, path: str | None) -> None:
    assert convert.path_of(uri) == path


@pytest.mark.parametrize(
    "path", ["/home/ada/train.py", "/a b/#?%;.py", "/🚀.py", "c:/Users/Ada/train.py", "//host/a/b.py"]
)
def test_a_path_comes_back_from_its_uri(path: str) -> None:
    assert convert.path_of(convert.uri_of(path)) == path


@pytest.mark.parametrize(
    ("title", "applicability", "shown"),
    [
        ("Divide by the tokens of the window", "safe", "Divide by the tokens of the window"),
        ("Correct the momentum", "partial", "Correct the momentum (partial fix)"),
        ("Correct the momentum (partial)", "partial", "Correct the momentum (partial)"),
        ("Use GroupNorm", "unsafe", "Use GroupNorm (unsafe fix)"),
    ],
)
def test_a_title_says_what_the_fix_is_worth(title: str, applicability: str, shown: str) -> None:
    assert convert.title(Fix(title, applicability, ())) == shown  # type: ignore[arg-type]


@pytest.mark.parametrize(("eol", "written"), [("\n", "a\nb\n"), ("\r\n", "a\r\nb\r\n")])
def test_an_edit_ends_its_lines_as_the_document_does(eol: str, written: str) -> None:
    item = types.TextDocumentItem(uri="untitled:a", language_id="python", version=1, text=f"x{eol}y{eol}")
    place = Span(Position(2, 1), Position(2, 1))
    for text in ("a\nb\n", "a\r\nb\r\n"):
        (edit,) = convert.text_edits(Document(item, "utf-16"), Fix("", "safe", (Edit(place, text),)))
        assert (edit.new_text, edit.range.start) == (written, types.Position(1, 0))
