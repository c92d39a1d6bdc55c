"""Tracebacks as notebooks, boxes, letters and web forms show them: no frame may be lost on the way."""

import pytest

from reading import raised, read, shape

NOTEBOOK = """\
---------------------------------------------------------------------------
ValueError                                Traceback (most recent call last)
Cell In[12], line 3
      1 rows = load()
      2
----> 3 fit(rows)

File D:\\Deep Learning (new)\\kit\\fit.py:1045, in fit(rows)
   1044     for row in rows:
-> 1045         check(row)

File ~/kit/check.py:7
      6 def check(row):
----> 7     raise ValueError(row)

ValueError: bad row 7
"""
OLD_NOTEBOOK = """\
ValueError                                Traceback (most recent call last)
<ipython-input-31-00aa11bb22cc> in <module>
----> 1 fit(rows)
      2 save()

~/kit/fit.py in fit(rows)
     10     for row in rows:
---> 11         check(row)
     12

ValueError: bad row 7
"""
COLAB = """\
ValueError                                Traceback (most recent call last)

[<ipython-input-31-00aa11bb22cc>](https://localhost:8080/#) in <cell line: 1>()
----> 1 fit(rows)

2 frames

[/content/kit/fit.py](https://localhost:8080/#) in fit(rows)
     10     for row in rows:
---> 11         check(row)

ValueError: bad row 7
"""
PLAIN = """\
Traceback (most recent call last):
  File "fit.py", line 4, in <module>
    fit(rows)
  File "/home/ann/kit/fit.py", line 11, in fit
    check(row)
ValueError: bad row 7
"""


def places(text: str) -> list[tuple[str, int]]:
    (one,) = raised(text)
    (block,) = one.blocks
    assert (block.type, block.message) == ("ValueError", "bad row 7")
    return [(frame.file, frame.line) for frame in block.frames]


def test_a_notebook_shows_an_empty_line_before_the_exception() -> None:
    windows = "D:\\Deep Learning (new)\\kit\\fit.py"
    assert places(NOTEBOOK) == [("Cell In[12]", 3), (windows, 1045), ("~/kit/check.py", 7)]


@pytest.mark.parametrize(("text", "file"), [(OLD_NOTEBOOK, "~/kit/fit.py"), (COLAB, "/content/kit/fit.py")])
def test_before_ipython_8_the_line_stands_at_the_arrow(text: str, file: str) -> None:
    assert places(text) == [("<ipython-input-31-00aa11bb22cc>", 1), (file, 11)]


def test_an_empty_line_behind_every_line() -> None:
    assert places(PLAIN.replace("\n", "\n\n")) == places(PLAIN) == [("fit.py", 4), ("/home/ann/kit/fit.py", 11)]


def test_frames_that_nothing_named_follows_keep_no_exception() -> None:
    cut = PLAIN.rsplit("ValueError", 1)[0] + "\nsaved the model\n"
    assert shape(cut) == [[("", "", None)]]


def test_a_box_that_is_too_narrow_for_a_path() -> None:
    box = (
        "\u256d\u2500\u2500\u2500 Traceback (most recent call last) \u2500\u2500\u2500\u256e\n"
        "\u2502 C:\\lab\\a long name\\ki \u2502\n"
        "\u2502 t\\fit.py:11 in fit   \u2502\n"
        "\u2502                      \u2502\n"
        "\u2502 \u2771 11 \u2502   check(row)    \u2502\n"
        "\u2502 /home/ann/check.py:7 in check \u2502\n"
        "\u2570\u2500\u2500\u2500\u256f\n"
        "ValueError: bad row 7\n"
    )
    assert places(box) == [("C:\\lab\\a long name\\kit\\fit.py", 11), ("/home/ann/check.py", 7)]


def test_the_message_is_the_traceback_of_another_process() -> None:
    text = PLAIN.replace(
        "ValueError: bad row 7", 'KeyError: Traceback (most recent call last):\n  File "w.py", line 2, in w'
    )
    (one,) = raised(text + "    x[1]\nKeyError: 1\n")
    assert [(each.type, each.link, [frame.line for frame in each.frames]) for each in one.blocks] == [
        ("KeyError", "wrapped", [2]),
        ("KeyError", None, [4, 11]),
    ]


def test_what_a_backend_raised_belongs_to_its_message() -> None:
    text = PLAIN.replace("ValueError: bad row 7", "kit.BackendFailed: backend='x' raised:\nRuntimeError: no kernel")
    (one,) = raised(text)
    assert one.blocks[-1].message == "backend='x' raised:\nRuntimeError: no kernel"


def test_a_header_that_stands_deeper_than_its_frames_cuts_no_message() -> None:
    text = "   " + PLAIN + "        more about row 7\n"
    (one,) = raised(text)
    assert one.blocks[-1].message.split() == ["bad", "row", "7", "more", "about", "row", "7"]


def test_bold_lines_are_the_same_lines() -> None:
    text = PLAIN.replace("ValueError: bad row 7", "**ValueError: bad row 7**").replace("check(row)", "**check(row)**")
    assert places(text) == places(PLAIN)


def test_a_file_and_a_number_in_a_message_are_no_frame() -> None:
    (one,) = raised(PLAIN.replace("bad row 7", "bad row 7, see\n  File settings.yaml:12"))
    assert one.blocks[-1].message.endswith("File settings.yaml:12")


def test_a_listing_with_line_numbers_is_the_text_without_them() -> None:
    body = ["Traceback (most recent call last):", '  File "a.py", line 3, in f', "    go()", "ValueError: bad row 7"]
    for form in ("{:6}\t{}", "{:7} {}"):
        text = "\n".join(form.format(number, line) for number, line in enumerate(body, start=8))
        (found,) = read(text).raised
        assert (found.blocks[0].type, found.blocks[0].message) == ("ValueError", "bad row 7")
        assert [frame.line for frame in found.blocks[0].frames] == [3]


def test_what_ray_adds_behind_a_line_is_no_part_of_it() -> None:
    text = "(Worker pid=7) ValueError: bad row 7 [repeated 3x across cluster] (Ray deduplicates logs by default.)"
    assert [each.blocks[0].message for each in read(text).raised] == ["bad row 7"]


CELL = """\
╭───────────────────────── Traceback (most recent call last) ─────────────────────────╮
│ in <module>:5                                                                       │
│                                                                                     │
│   2 rows = load()                                                                   │
│ ❱ 5 fit(rows)                                                                       │
│                                                                                     │
│ in fit:12                                                                           │
╰─────────────────────────────────────────────────────────────────────────────────────╯
ValueError: bad row 7
"""


def test_the_frames_of_a_cell_in_a_box() -> None:
    (found,) = raised(CELL)
    frames = [(frame.file, frame.line, frame.function) for frame in found.blocks[0].frames]
    assert frames == [("(cell or prompt)", 5, "<module>"), ("(cell or prompt)", 12, "fit")]


@pytest.mark.parametrize("header", ["Traceback (most recent call last): ", ""])
def test_a_traceback_on_one_line(header: str) -> None:
    frames = 'File "a.py", line 3, in <module> main() File "b.py", line 9, in main raise ValueError("bad row")'
    (found,) = raised(f"{header}{frames} ValueError: bad row 7 of 9\nepoch 1\n")
    block = found.blocks[0]
    assert [(each.file, each.line, each.function) for each in block.frames] == [
        ("a.py", 3, "<module>"),
        ("b.py", 9, "main"),
    ]
    assert (block.type, block.message) == ("ValueError", "bad row 7 of 9")
    assert block.at.raw == "ValueError: bad row 7 of 9"


@pytest.mark.parametrize("text", ['see File "a.py", line 3, in f of the kit', '  File "a.py", line 3, in f'])
def test_what_is_no_joined_traceback_stays_one_line(text: str) -> None:
    assert [line.text for line in read(text).lines] == [text]
