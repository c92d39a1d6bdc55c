"""Files that are no scripts, or hardly: each is said or passed by, and costs nothing but itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from faulty import HEAD, LOOP, SCRIPT, notebook, notebook_text

from firstfault.lint.check import check_paths

LONGEST_WAIT = 120  # seconds, until something counts as hanging


def check(*arguments: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "firstfault", "check", *map(str, arguments)]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", cwd=cwd, env=environment, timeout=LONGEST_WAIT
    )
    assert "Traceback" not in done.stderr and "fault of Firstfault" not in done.stderr
    return done


def codes(*paths: Path) -> list[str]:
    return [each.code for each in check_paths(map(str, paths)).findings]


@pytest.mark.parametrize("format", ["text", "json", "sarif", "github"])
@pytest.mark.parametrize("fix", [[], ["--fix"], ["--diff"]])
def test_no_format_and_no_fix_fails_on_a_folder_of_odd_files(tmp_path: Path, format: str, fix: list[str]) -> None:
    good = SCRIPT.encode()
    for name, data in {
        "train.py": good,
        "two.py": b"print 'x'\nexec 'y'\nloss.backward()\n",
        "half.py": good + b"def f(:\n",
        "empty.py": b"",
        "nul.py": b"\0" + good,
        "wide.py": SCRIPT.encode("utf-16"),
        "cookie.py": b"# coding: no-such\n" + good,
        "hex.py": b"# coding: hex\n" + good,
        "latin.py": b"x = '\xe9'\n" + good,
        "no-cells.ipynb": b"{}",
        "list.ipynb": b"[1]",
        "cells.ipynb": b'{"cells": 3}',
        "cell.ipynb": b'{"cells": [1, {"cell_type": "code"}, {"cell_type": "code", "source": [1]}]}',
        "cut.ipynb": notebook_text(HEAD, LOOP).encode()[:-30],
        "twice.ipynb": b'{"cells": [], "cells": [{"cell_type": "code", "source": "x = (\\n", "source": "y"}]}',
        "bare.ipynb": json.dumps({"cells": notebook(HEAD, LOOP)["cells"]}).encode(),
        "deep.py": b"x = " + b"(" * 2000 + b"1" + b")" * 2000 + b"\nloss.backward()\n",
        "strange name\n.py": good,
    }.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "self.py").symlink_to("self.py")
    (tmp_path / "gone.py").symlink_to("nowhere.py")
    done = check("--format", format, *fix, ".", cwd=tmp_path)
    # Where all that is left after a fix are hints, the unreadable files decide.
    assert done.returncode in ((1,) if fix != ["--fix"] else (1, 2)), done.stderr
    assert "nul.py" in done.stderr and "no-such" in done.stderr
    assert (tmp_path / "two.py").read_bytes().startswith(b"print 'x'\nexec")


def test_python_2_is_said_to_be_python_2(tmp_path: Path) -> None:
    path = tmp_path / "old.py"
    path.write_text(SCRIPT + "print 'done'\n")
    (finding,) = check_paths([str(path)]).findings
    assert (finding.code, finding.severity) == ("syntax-error", "hint") and "This is Python 2" in finding.message


def test_a_notebook_without_metadata_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "bare.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": each} for each in (HEAD, LOOP)]}))
    assert codes(path) == ["GA101"]


def test_a_very_long_script_keeps_its_findings(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text(SCRIPT + "\n".join(f"value_{number} = [{number}, '#']" for number in range(20_000)) + "\n")
    assert codes(path) == ["GA101"]
    path.write_text(path.read_text() + "X = 1  # firstfault: ignore[GA102]\n")
    assert codes(path) == ["GA101", "unused-ignore"]


def test_a_file_that_vanishes_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from firstfault.lint import check as module

    (tmp_path / "a.py").write_text(SCRIPT)
    (tmp_path / "b.py").write_text(SCRIPT)
    real = module.read_source

    def vanishing(path: str) -> str:
        if path.endswith("a.py"):
            os.unlink(path)
        return real(path)

    monkeypatch.setattr(module, "read_source", vanishing)
    found = check_paths([str(tmp_path)])
    assert [Path(each.file).name for each in found.findings] == ["b.py"]
    assert [Path(each.path).name for each in found.problems] == ["a.py"] and "cannot be read" in found.problems[
        0
    ].message


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_said(tmp_path: Path) -> None:
    for name in ("shut.py", "open.py"):
        (tmp_path / name).write_text(SCRIPT)
    (tmp_path / "closed").mkdir()
    (tmp_path / "shut.py").chmod(0)
    (tmp_path / "closed").chmod(0)
    found = check_paths([str(tmp_path)])
    (tmp_path / "closed").chmod(0o700)
    assert len(found.findings) == 1 and {Path(each.path).name for each in found.problems} == {"shut.py", "closed"}


def test_settings_that_cannot_be_followed_end_the_check(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "pyproject.toml").write_text("[tool.firstfault]\nselct = []\n")
    done = check(".", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and "Did you mean select?" in done.stderr
    assert check("--select", "GA999", "-", cwd=tmp_path).returncode == 2


def test_progress_is_for_terminals_alone(tmp_path: Path) -> None:
    import io

    from firstfault.commands.progress import Progress

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream in (io.StringIO(), Terminal()):
        progress = Progress(stream)
        progress._next = 0.0
        progress(1, 1200)
        progress.clear()
        shown = "\r\x1b[KChecked 1 of 1,200 files\r\x1b[K" if isinstance(stream, Terminal) else ""
        assert stream.getvalue() == shown


@pytest.mark.parametrize("cut", ["{", '{"cells": [', '{"cells": [], ', '{"cells": [{"source": ["a', "["])
def test_a_cut_notebook_costs_no_other_file_its_findings(tmp_path: Path, cut: str) -> None:
    (tmp_path / "cut.ipynb").write_text(cut)
    (tmp_path / "train.py").write_text((Path(__file__).parents[2] / "examples" / "train.py").read_text())
    found = check_paths([str(tmp_path)]).findings
    assert {"GA101", "syntax-error"} <= {each.code for each in found}
