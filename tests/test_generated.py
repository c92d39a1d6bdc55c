"""What is printed from the source is up to date, and printed the same on every run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PRINT = "import generate, hashlib; print(hashlib.sha256(repr(sorted(generate.printed().items())).encode()).hexdigest())"


@pytest.fixture
def generate(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import generate

    return generate


def test_no_page_is_stale():
    command = [sys.executable, str(ROOT / "scripts" / "generate.py"), "--check"]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_two_runs_print_the_same():
    def digest(seed):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / "scripts")}
        return subprocess.check_output([sys.executable, "-c", PRINT], env=environment, text=True)

    assert digest("1") == digest("2")


def test_a_stale_page_fails_with_the_command_to_run(generate, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(generate, "printed", lambda: {"docs/rules/some-rule.md": "new\n"})
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    (tmp_path / "docs" / "rules").mkdir(parents=True)
    (tmp_path / "docs" / "rules" / "some-rule.md").write_text("old\n")
    (tmp_path / "docs" / "rules" / "gone.md").write_text("its rule was deleted\n")

    assert generate.main(["--check"]) == 1
    said = capsys.readouterr().out
    assert "docs/rules/some-rule.md is stale" in said
    assert "docs/rules/gone.md has no source any more" in said
    assert "Run: make docs" in said

    assert generate.main([]) == 0
    assert (tmp_path / "docs" / "rules" / "some-rule.md").read_text() == "new\n"
    assert not (tmp_path / "docs" / "rules" / "gone.md").exists()
    assert generate.main(["--check"]) == 0


def test_links_between_the_papers_lead_somewhere():
    import re

    papers = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")]
    broken = [
        f"{paper.relative_to(ROOT)}: {target}"
        for paper in papers
        for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", paper.read_text(encoding="utf-8"))
        if not (paper.parent / target).exists()
    ]
    assert not broken
