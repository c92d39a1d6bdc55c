"""``check --fix`` and ``--diff``: what is written, what is kept, and what is left alone."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from faulty import HEAD, LOOP, SCRIPT, notebook, notebook_text

from firstfault.lint import Finding, Fix
from firstfault.lint.check import check_paths
from firstfault.lint.fixing import SAFE, Lint, applied, fixed
from firstfault.lint.notebook_file import line_of, replaced, sources
from firstfault.text import Edit, LineTable, Position, Span

NORM = """\
import torch
from torch import nn

STEPS = 8
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))


def fit(endless_batches, optimizer):
    net.train()
    for number, (images, marks) in enumerate(endless_batches):
        loss = nn.functional.cross_entropy(net(images), marks) / STEPS
        loss.backward()
        if (number + 1) % STEPS == 0:
            optimizer.step()
            optimizer.zero_grad()
"""


def check(*arguments: object, stdin: bytes = b"", cwd: Path | None = None) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "firstfault", "check", *map(str, arguments)]
    done = subprocess.run(
        command, input=stdin, capture_output=True, cwd=cwd, env={**os.environ, "PYTHONIOENCODING": "utf-8"}
    )
    assert b"Traceback" not in done.stderr and b"fault of Firstfault" not in done.stderr, done.stderr
    return done


def test_fixed_code_is_clean_and_a_second_fix_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    assert check(path).returncode == 1
    done = check("--fix", path)
    assert done.returncode == 0 and b"Fixed GA101 in 1 file." in done.stdout
    fixed = path.read_text()
    assert fixed != SCRIPT and check_paths([str(path)]).findings == []
    compile(fixed, "train.py", "exec")
    state = path.stat()
    again = check("--fix", path)
    assert (again.returncode, path.read_text()) == (0, fixed) and b"Fixed" not in again.stdout
    assert path.stat().st_mtime_ns == state.st_mtime_ns


def test_unsafe_fixes_are_applied_only_on_demand(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(NORM)
    assert (check("--fix", path).returncode, path.read_text()) == (1, NORM)
    done = check("--fix", "--unsafe-fixes", path)
    assert done.returncode == 0 and b"Fixed BN501" in done.stdout
    fixed = path.read_text()
    assert "GroupNorm" in fixed and check("--fix", "--unsafe-fixes", path).returncode == 0
    assert path.read_text() == fixed
    assert check("--unsafe-fixes", path).returncode == 2


def test_several_faults_of_one_file_are_repaired_together(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    second = LOOP.replace("def fit", "def fit_again").replace("number", "count")
    path.write_text(f"{SCRIPT}\n\n{second}\n\nX = 1  # firstfault: ignore[GA102]\n")
    done = check("--fix", path)
    assert done.returncode == 0 and b"Fixed GA101 2 times, unused-ignore in 1 file." in done.stdout
    assert len(re.findall(r"window_tokens_? = 0\n", path.read_text())) == 4 and path.read_text().endswith("X = 1\n")


def test_diff_changes_nothing_and_can_be_applied(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    for text in (SCRIPT, SCRIPT.rstrip("\n"), SCRIPT.replace("\n", "\r\n")):
        path.write_bytes(text.encode())
        done = check("--diff", "train.py", cwd=tmp_path)
        assert done.returncode == 1 and path.read_bytes() == text.encode()
        assert b"1 fix would change 1 file." in done.stderr
        check("--fix", path)
        wanted = path.read_bytes()
        path.write_bytes(text.encode())
        subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], input=done.stdout, cwd=tmp_path, check=True)
        assert path.read_bytes() == wanted
    assert check("--diff", path).returncode == 0


def test_diff_reads_standard_input_and_fix_does_not() -> None:
    done = check("--diff", "-", stdin=SCRIPT.encode())
    assert done.returncode == 1 and b"+    window_tokens = 0" in done.stdout
    assert check("--fix", "-", stdin=SCRIPT.encode()).returncode == 2


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("start", "encoding"),
    [("", "utf-8"), ("\ufeff", "utf-8"), ("# coding: latin-1\n", "latin-1"), ("# -*- coding: cp1252 -*-\n", "cp1252")],
)
def test_line_ends_and_encoding_are_kept(tmp_path: Path, start: str, encoding: str, ending: str) -> None:
    path = tmp_path / "train.py"
    text = f"{start}{SCRIPT}NAME = 'Grüße'\n".replace("\n", ending)
    path.write_bytes(text.encode(encoding))
    assert check("--fix", path).returncode == 0
    fixed = path.read_bytes().decode(encoding)
    assert fixed.startswith(start.replace("\n", ending)) and fixed.endswith(f"NAME = 'Grüße'{ending}")
    assert fixed.count("\n") == fixed.count(ending) * ending.count("\n")
    assert fixed.count("\r") == fixed.count(ending) * ending.count("\r")
    assert "micro_tokens" in fixed


def test_what_cannot_be_encoded_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    data = f"# coding: iso2022-jp\n{SCRIPT}NAME = '\x1b(B'\n".encode("ascii")  # an escape that changes nothing
    path.write_bytes(data)
    done = check("--fix", path)
    assert (done.returncode, path.read_bytes()) == (2, data)
    assert b"cannot be written back as iso2022-jp" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="rights and links of another kind")
def test_rights_and_links_are_kept_and_no_neighbour_stays(tmp_path: Path) -> None:
    real, link = tmp_path / "real" / "train.py", tmp_path / "train.py"
    real.parent.mkdir()
    real.write_text(SCRIPT)
    real.chmod(0o751)
    link.symlink_to(real)
    assert check("--fix", link).returncode == 0
    assert link.is_symlink() and stat.S_IMODE(real.stat().st_mode) == 0o751
    assert "micro_tokens" in real.read_text() and os.listdir(real.parent) == ["train.py"]


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    from firstfault.lint.source import Unreadable
    from firstfault.lint.writing import write_fixed

    path = tmp_path / "train.py"
    path.write_text("newer\n")
    with pytest.raises(Unreadable, match="changed since"):
        write_fixed(str(path), "older\n", "fixed\n")
    assert path.read_text() == "newer\n"
    path.unlink()
    with pytest.raises(Unreadable, match="cannot be read"):
        write_fixed(str(path), "older\n", "fixed\n")


# ------------------------------------------------------------------------------------------ notebooks


def fixed_notebook(tmp_path: Path, text: str) -> str:
    path = tmp_path / "run.ipynb"
    path.write_bytes(text.encode())
    done = check("--fix", path)
    assert done.returncode == 0, done.stdout + done.stderr
    fixed = path.read_bytes().decode()
    assert check("--fix", path).returncode == 0 and path.read_bytes().decode() == fixed
    return fixed


@pytest.mark.parametrize("indent", [None, 1, 2, "\t"])
def test_a_notebook_keeps_its_formatting(tmp_path: Path, indent: int | str | None) -> None:
    text = json.dumps(notebook(HEAD, LOOP, "print(1)", zoo={"b": 1.10, "a": [1e3]}), indent=indent)  # type: ignore[arg-type]
    text = text.replace("1000.0", "1e3") + "\n\n"
    fixed = fixed_notebook(tmp_path, text)
    start, end = text.index("def fit"), text.rindex("print(1)")
    assert fixed[: start - 1] == text[: start - 1] and fixed.endswith(text[end:])
    before, after = json.loads(text), json.loads(fixed)
    assert after["cells"][:2] == before["cells"][:2] and after["cells"][3:] == before["cells"][3:]
    compile("".join(after["cells"][2]["source"]), "cell", "exec")
    assert json.dumps(after, indent=indent) == fixed.rstrip("\n").replace("1e3", "1000.0")  # type: ignore[arg-type]


def test_a_source_may_be_one_string(tmp_path: Path) -> None:
    document = notebook(HEAD, LOOP)
    document["cells"][2]["source"] = LOOP
    after = json.loads(fixed_notebook(tmp_path, json.dumps(document)))
    assert isinstance(after["cells"][2]["source"], str) and "micro_tokens" in after["cells"][2]["source"]


def test_escapes_of_a_notebook_stay_as_they_were(tmp_path: Path) -> None:
    text = notebook_text(HEAD, LOOP + "NAME = 'Grüße \U0001f600'\n")
    assert "\\u00fc" in text and "\\u00fc" in fixed_notebook(tmp_path, text)
    plain = json.dumps(notebook(HEAD, LOOP + "NAME = 'Grüße'\n"), ensure_ascii=False)
    assert "Grüße" in fixed_notebook(tmp_path, plain)


def test_magics_are_stepped_over_and_a_loop_at_the_end_of_its_cell_is_mended(tmp_path: Path) -> None:
    text = notebook_text("%pip install torch\n" + HEAD, "!nvidia-smi\n" + LOOP.rstrip("\n"), "print(1)")
    after = json.loads(fixed_notebook(tmp_path, text))
    assert after["cells"][2]["source"][0] == "!nvidia-smi\n"
    assert after["cells"][3]["source"] == ["print(1)"]


def test_a_comment_on_the_last_line_of_a_cell_is_removed_from_it(tmp_path: Path) -> None:
    text = notebook_text("x = 1\n# firstfault: ignore", "y = 2")
    after = json.loads(fixed_notebook(tmp_path, text))
    assert [each["source"] for each in after["cells"][1:]] == [["x = 1"], ["y = 2"]]


def test_the_lines_of_a_notebook_are_found_in_its_file() -> None:
    text = notebook_text(HEAD, LOOP)
    source = sources(text)[2]
    assert source is not None
    for number, line in enumerate(LOOP.splitlines(), 1):
        assert json.dumps(line)[1:-1] in text.split("\n")[line_of(text, source, number) - 1]
    assert replaced(text, {2: LOOP, 1: HEAD}) == text
    assert replaced(text, {1: ""}).count('"source": []') == 1


def test_each_line_of_a_notebook_keeps_its_letters(tmp_path: Path) -> None:
    text = json.dumps(notebook(HEAD, LOOP + "A = 'Grüße'\nB = 'escaped'\n"), ensure_ascii=False, indent=1)
    fixed = fixed_notebook(tmp_path, text.replace("escaped", "\\u00fc\\/"))
    assert "Grüße" in fixed and "'\\u00fc\\/'" in fixed


# ------------------------------------------------------------------------------------------ which fixes hold


def lint_by_word(fixes: dict[str, str]) -> Lint:
    """A lint that finds each word of ``fixes`` wherever it stands, and offers to put another in its place."""

    def lint(text: str) -> list[Finding]:
        table = LineTable(text)
        spans = [(word, match.span()) for word in fixes for match in re.finditer(rf"\b{word}\b", text)]
        return [finding(word, Span(table.position(start), table.position(end))) for word, (start, end) in spans]

    def finding(word: str, span: Span) -> Finding:
        fix = Fix("Replace it", "safe", (Edit(span, fixes[word]),))
        return Finding(word, word, "a.py", span, "error", "wrong", "", fixes=(fix,))

    return lint


@pytest.mark.parametrize(
    ("fixes", "text", "after"),
    [
        ({"bad": "good"}, "bad = bad\n", "good = good\n"),
        ({"bad": "worse", "worse": "bad"}, "bad = 1\n", "bad = 1\n"),  # a circle
        ({"bad": "worse + worse", "worse": ""}, "x = bad\n", "x = bad\n"),  # one goes, two come
        ({"bad": "("}, "x = bad\n", "x = bad\n"),  # it no longer parses
        ({"bad": "bad"}, "x = bad\n", "x = bad\n"),  # nothing changes
        ({"bad": "(", "poor": "good"}, "x = bad, poor\n", "x = bad, good\n"),  # the others are still applied
    ],
)
def test_a_fix_is_kept_only_where_it_holds(fixes: dict[str, str], text: str, after: str) -> None:
    result = fixed(text, "a.py", lint_by_word(fixes), SAFE)
    assert result.text == after and bool(result.fixed) == (after != text)
    assert fixed(after, "a.py", lint_by_word(fixes), SAFE).text == after


def test_edits_that_overlap_are_no_fix() -> None:
    span = Span(Position(1, 1), Position(1, 4))
    both = Fix("Twice", "safe", (Edit(span, "a"), Edit(Span(Position(1, 2), Position(1, 5)), "b")))
    assert applied("x = 1\n", both, None) is None
    assert applied("x = 1\n", Fix("Far", "safe", (Edit(Span(Position(9, 1), Position(9, 1)), "a"),)), None) is None
