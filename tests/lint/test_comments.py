"""Comments that silence findings, and what is said about those that silence nothing."""

import pytest
from faulty import FAULT, HEAD, SCRIPT

from firstfault.lint import Finding, Workspace, lint
from firstfault.lint.config import config_of
from firstfault.text import apply_edits


def check(source: str, **settings: object) -> list[Finding]:
    found = lint(source, "/p/train.py", Workspace("/p", {}), config_of(settings, "settings"))
    assert found is not None
    return found


def codes(source: str, **settings: object) -> list[str]:
    return [each.code for each in check(source, **settings)]


def beside(comment: str) -> str:
    return SCRIPT.replace(FAULT, f"{FAULT}  {comment}")


@pytest.mark.parametrize(
    "comment",
    [
        "# firstfault: ignore[GA101]",
        "# firstfault: ignore[mean-of-means]",
        "# firstfault: ignore[ga101]  because every batch is full",
        "# firstfault: ignore",
        "#firstfault:ignore[GA101]",
        "# type: ignore # firstfault: ignore[GA101]",
        "# noqa",
        "# NOQA",
        "#noqa",
        "# noqa: GA101",
        "# noqa:E501,GA101",
        "# noqa: E501 GA101",
        "# fmt: skip # noqa: GA101 - every batch is full",
    ],
)
def test_a_comment_on_the_line_silences_it(comment: str) -> None:
    assert codes(SCRIPT) == ["GA101"]
    assert codes(beside(comment)) == []


@pytest.mark.parametrize("comment", ["# noqa: E501", "# noqa: none", "# noqable", "# nothing: GA101", "# flake8: noqa"])
def test_other_comments_do_not(comment: str) -> None:
    assert codes(beside(comment)) == ["GA101"]


@pytest.mark.parametrize(
    "text",
    [
        "'# firstfault: ignore[GA101]'",
        '"""\n# firstfault: ignore-file\n"""',
        "f'# noqa {1}'",
        "b'# firstfault: ignore-file'",
        "('one'\n    '# firstfault: ignore-file')",
    ],
)
def test_a_string_is_no_comment(text: str) -> None:
    assert codes(f"NOTE = {text}\n{SCRIPT}") == ["GA101"]
    assert codes(SCRIPT.replace(FAULT, f"{FAULT}; note = 'a # firstfault: ignore'")) == ["GA101"]


def test_a_comment_between_the_parts_of_a_string_is_one() -> None:
    text = f"NOTE = ('one'  # firstfault: ignore-file[GA101]\n    'two')\n{SCRIPT}"
    assert codes(text) == []
    assert codes(text.replace("'two')", "'# two')")) == []


@pytest.mark.parametrize("above", ["for number", "def fit"])
def test_a_comment_above_a_statement_silences_the_whole_of_it(above: str) -> None:
    line = next(line for line in SCRIPT.splitlines() if line.lstrip().startswith(above))
    indent = line[: len(line) - len(line.lstrip())]
    for comment in ("# firstfault: ignore[GA101]", "# firstfault: ignore[GA101]\n\n# Another remark."):
        commented = "\n".join(indent + each if each else each for each in comment.split("\n"))
        assert codes(SCRIPT.replace(line, f"{commented}\n{line}")) == []


def test_a_comment_above_another_statement_does_not_reach_the_loop() -> None:
    source = SCRIPT.replace("        tags[words", "        # firstfault: ignore[GA101]\n        tags[words")
    assert codes(source) == ["unused-ignore", "GA101"]


def test_decorators_belong_to_the_statement() -> None:
    source = SCRIPT.replace("def fit", "# firstfault: ignore[GA101]\n@decorated\n@twice(1)\ndef fit")
    assert codes(source) == []


def test_a_comment_for_the_file() -> None:
    assert codes(f"# firstfault: ignore-file[GA101]\n{SCRIPT}") == []
    assert codes(f"{SCRIPT}# firstfault: ignore-file\n") == []


@pytest.mark.parametrize(
    ("comment", "message", "left"),
    [
        ("# firstfault: ignore[GA102]", "GA102 is not found here; there is nothing to ignore.", ""),
        ("# firstfault: ignore[GA101, GA102]", "GA102 is not found", "# firstfault: ignore[GA101]"),
        ("# firstfault: ignore[GA102] for a reason", "GA102 is not found", ""),
        ("# mine # firstfault: ignore[GA102]", "GA102 is not found", "# mine"),
        ("# firstfault: ignore[GA102] # mine", "GA102 is not found", "# mine"),
        ("# firstfault: ignore[GA909]", "There is no rule GA909.", ""),
        ("# firstfault: ignore[mean-of-meens]", "Did you mean mean-of-means?", ""),
        ("# noqa: E501, GA102", "GA102 is not found", "# noqa: E501"),
    ],
)
def test_what_silences_nothing_is_a_hint_that_can_be_removed(comment: str, message: str, left: str) -> None:
    source = beside(comment)
    hint = next(each for each in check(source) if each.code == "unused-ignore")
    assert hint.severity == "hint" and message in hint.message
    assert source.splitlines()[hint.span.start.line - 1][hint.span.start.column - 1 :].strip()
    (fix,) = hint.fixes
    assert fix.applicability == "safe"
    assert apply_edits(source, fix.edits) == (beside(left) if left else SCRIPT)


def test_a_line_that_holds_the_comment_alone_goes_with_it() -> None:
    clean = f"{HEAD}loss.backward()\n"
    for ending in ("\n", "\r\n"):
        source = f"# firstfault: ignore\n{clean}".replace("\n", ending)
        (hint,) = check(source)
        assert apply_edits(source, hint.fixes[0].edits) == clean.replace("\n", ending)


@pytest.mark.parametrize("comment", ["# noqa: E501", "# noqa", "# noqa: F401, E402"])
def test_what_is_meant_for_others_is_not_judged(comment: str) -> None:
    assert codes(f"{HEAD}import os  {comment}\n{SCRIPT}") == ["GA101"]


def test_a_rule_that_is_switched_off_leaves_its_comment_alone() -> None:
    source = beside("# firstfault: ignore[GA102]")
    assert codes(source) == ["GA101", "unused-ignore"]
    assert codes(source, ignore=["GA102"]) == ["GA101"]
    assert codes(source, select=["GA101"]) == ["GA101"]
    assert codes(source, ignore=["unused-ignore"]) == ["GA101"]


def test_while_a_line_is_being_typed_nothing_is_called_unused() -> None:
    assert codes(beside("# firstfault: ignore[GA102]") + "x = (1 +") == ["GA101"]
