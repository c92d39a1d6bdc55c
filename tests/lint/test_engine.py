"""The engine under the rules: parsing what is half typed, positions, notebooks, suppression, files and folders."""

import json
from pathlib import Path

import pytest

from firstfault.lint import Finding, Workspace, lint
from firstfault.lint.check import check_paths
from firstfault.lint.config_values import config_value
from firstfault.lint.notebook import masked
from firstfault.lint.render import to_text
from firstfault.lint.script import read_script
from firstfault.lint.source import Unreadable, decode_source
from firstfault.text import Position, apply_edits

FAULTY = """\
import torch.nn.functional as F


def train(model, loader, optimizer, steps):
    for i, (ids, labels) in enumerate(loader):
        labels[ids == 0] = -100
        loss = F.cross_entropy(model(ids), labels)
        loss = loss / steps
        loss.backward()
        if (i + 1) % steps == 0:
            optimizer.step()
            optimizer.zero_grad()
"""


def found(source: str, path: str = "/p/train.py") -> list[Finding]:
    result = lint(source, path, Workspace())
    assert result is not None
    return [each for each in result if each.code == "GA101"]


def place(source: str) -> tuple[int, int]:
    (finding,) = found(source)
    return finding.span.start


def test_the_finding_spans_the_division() -> None:
    (finding,) = found(FAULTY)
    assert finding.span == (Position(8, 16), Position(8, 28))


@pytest.mark.parametrize(
    "typed",
    [
        "    x = (1 +",
        "    if model.",
        "    print('half",
        "    for name in",
        "    model.fit(ids, labels=[1, 2",
        "      odd = 1",
        "    def inner(",
    ],
)
def test_a_half_typed_line_costs_only_itself(typed: str) -> None:
    lines = FAULTY.split("\n")
    lines.insert(4, typed)
    assert place("\n".join(lines)) == (9, 16)


def test_what_cannot_be_repaired_is_unchanged_not_clean() -> None:
    assert lint(FAULTY.replace("def train", "class def train").replace("\n", "\n)(\n") * 2, "a.py", Workspace()) is None


@pytest.mark.parametrize("text", ["\0" + FAULTY, "x = " + "(" * 500 + "loss.backward", "x = '''backward\n"])
def test_no_text_makes_the_lint_fail(text: str) -> None:
    lint(text, "a.py", Workspace())


def test_deep_expressions_do_not_end_the_lint() -> None:
    lint("x = a" + ".b" * 3000 + "\n" + FAULTY, "a.py", Workspace())
    lint("x = " + "+".join(["1"] * 5000) + "\n" + FAULTY, "a.py", Workspace())


def test_columns_count_characters() -> None:
    source = FAULTY.replace("        loss = loss / steps", "        größe = '😀'; loss = loss / steps")
    assert place(source) == (8, 29)


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_line_ends(ending: str) -> None:
    assert place(FAULTY.replace("\n", ending)) == (8, 16)


def test_a_form_feed_and_other_separators_end_no_line() -> None:
    assert place("\f" + FAULTY.replace("        labels[", "        note = 'a\x0cb\x85c\u2028d'\n        labels[")) == (
        9,
        16,
    )


def test_a_byte_order_mark_shifts_the_first_line_only() -> None:
    script = read_script("\ufeffx = 1\ny = 2\n", "a.py")
    assert script is not None
    assert [script.span(each).start for each in script.tree.body] == [(1, 2), (2, 1)]
    assert [script.text(each) for each in script.tree.body] == ["x = 1", "y = 2"]
    assert place("\ufeff" + FAULTY) == (8, 16)


def test_a_fix_keeps_the_line_ends_of_the_file() -> None:
    source = FAULTY.replace("\n", "\r\n")
    after = apply_edits(source, found(source)[0].fixes[0].edits)
    assert "micro_tokens" in after and "\n" not in after.replace("\r\n", "")


def test_a_fix_keeps_tabs() -> None:
    source = FAULTY.replace("    ", "\t")
    after = apply_edits(source, found(source)[0].fixes[0].edits)
    compile(after, "train.py", "exec")
    assert "\t\twindow_tokens += micro_tokens" in after and "    " not in after


def test_names_of_the_script_are_left_alone() -> None:
    source = FAULTY.replace("steps)", "steps, window_tokens)")
    assert "window_tokens_ = 0" in apply_edits(source, found(source)[0].fixes[0].edits)


@pytest.mark.parametrize(
    ("comment", "silent"),
    [
        ("# firstfault: ignore[GA101]", True),
        ("# firstfault: ignore[mean-of-means]", True),
        ("# firstfault: ignore[BN501, GA101]", True),
        ("# firstfault: ignore", True),
        ("# firstfault: ignore[BN501]", False),
        ("# ignore[GA101]", False),
    ],
)
def test_a_comment_on_the_line(comment: str, silent: bool) -> None:
    source = FAULTY.replace("loss / steps", f"loss / steps  {comment}")
    assert bool(found(source)) is not silent


def test_a_comment_for_the_file() -> None:
    assert not found("# firstfault: ignore-file[GA101]\n" + FAULTY)
    assert found("# firstfault: ignore-file[BN501]\n" + FAULTY)


def notebook(*cells: str, kind: str = "code") -> str:
    made = [{"cell_type": kind, "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps({"cells": [{"cell_type": "markdown", "source": ["# Title"]}, *made], "nbformat": 4})


def test_a_notebook_counts_lines_within_its_cell() -> None:
    source = notebook("%pip install torch\n!ls\nimport os", "%%bash\nloss.backward(", "%%time\n" + FAULTY)
    (finding,) = found(source, "/p/train.ipynb")
    assert (finding.cell, finding.span.start) == (3, (9, 16))
    assert finding.fixes and all(edit.span.start.line <= 14 for edit in finding.fixes[0].edits)


@pytest.mark.parametrize(
    "line",
    ["% pip install torch", "pip install torch", "ls ./runs", "model.forward??", "?model", "    !train \\\n --fast"],
)
def test_what_jupyter_reads_as_a_command_is_no_fault_of_the_notebook(line: str) -> None:
    assert [each.cell for each in found(notebook(line, FAULTY), "/p/train.ipynb")] == [2]


def test_a_text_that_is_formatted_over_lines_is_no_command() -> None:
    assert masked('name = (\n"%s"\n% (size)\n)\nls = 1') == 'name = (\n"%s"\n% (size)\n)\nls = 1'


def test_a_fix_does_not_reach_into_another_cell() -> None:
    loop = "for i, (ids, labels) in enumerate(loader):\n" + "".join(
        line[4:] + "\n" for line in FAULTY.split("\n")[5:] if line
    )
    head = "import torch.nn.functional as F\nsteps = 4"
    (finding,) = found(notebook(head, loop), "/p/train.ipynb")
    assert finding.cell == 2 and finding.fixes


def test_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FAULTY)
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "binary.py").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "wide.py").write_bytes("x = 1\n".encode("utf-16"))
    (tmp_path / "latin.py").write_bytes("# -*- coding: latin-1 -*-\nname = 'é'\n".encode("latin-1"))
    (tmp_path / "empty.py").write_bytes(b"")
    for folder in (".git", "node_modules", "lib/site-packages", ".venv"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "train.py").write_text(FAULTY)
    checked = check_paths([str(tmp_path), str(tmp_path / "train.py"), str(tmp_path / "gone.py")])
    codes = [(Path(each.file).name, each.code, each.severity) for each in checked.findings]
    assert codes == [
        ("broken.py", "syntax-error", "hint"),
        ("train.py", "GA101", "error"),
        ("train.py", "GA201", "warning"),
    ]
    assert {Path(each.path).name for each in checked.problems} == {"binary.py", "wide.py", "gone.py"}
    assert checked.files == 6


def test_undecodable_text_is_refused_in_words() -> None:
    with pytest.raises(Unreadable, match="utf-8"):
        decode_source(b"x = '\xff'\n")
    with pytest.raises(Unreadable, match="no-such"):
        decode_source(b"# coding: no-such\n")


def test_text_for_people(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(FAULTY)
    text = to_text(check_paths([str(path)]), colour=False)
    assert ":8:16: error GA101 mean-of-means" in text
    assert "   8 |         loss = loss / steps\n     |                ^^^^^^^^^^^^\n" in text
    assert "\n  unsafe fix: " in text and "\n1 error, 1 warning in 1 file.\n" in text
    assert "\x1b[" in to_text(check_paths([str(path)]), colour=True)


def test_a_sibling_of_the_workspace_is_found_by_every_kind_of_import(tmp_path: Path) -> None:
    package = tmp_path / "pkg" / "data"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .rows import Rows\n")
    (package / "rows.py").write_text("class Rows: ...\n")
    for line, name in [
        ("from pkg.data.rows import Rows", "Rows"),
        ("from pkg.data import Rows", "Rows"),
        ("from .data import Rows as R", "R"),
        ("from .data import rows", "rows.Rows"),
        ("import pkg.data.rows", "pkg.data.rows.Rows"),
        ("import pkg.data.rows as r", "r.Rows"),
    ]:
        script = read_script(line + "\n", str(tmp_path / "pkg" / "train.py"))
        assert script is not None
        defined = Workspace(str(tmp_path)).definition(name, script)
        assert defined is not None and defined[0].path == str(package / "rows.py"), line


def test_a_settings_file_that_appears_is_seen_by_the_next_lint() -> None:
    script = read_script("net = build(conf.encoder)\n", "/project/train.py")
    assert script is not None
    assert config_value(script, "conf.encoder", Workspace("/project")) is None
    found = config_value(script, "conf.encoder", Workspace("/project", {"/project/run.yaml": "encoder: resnet18\n"}))
    assert found is not None and (found.value, found.line) == ("resnet18", 1)
