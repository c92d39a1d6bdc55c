"""Which files of a folder are checked: git's ignored ones, environments and hidden folders are passed by."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from faulty import SCRIPT
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from firstfault.lint.check import Options, check_paths
from firstfault.lint.config import Config
from firstfault.lint.gitignore import is_left_out, patterns_of

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")


def tree(root: Path, *files: str, **texts: str) -> None:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(SCRIPT)
    for name, text in texts.items():
        (root / name).write_text(text)


def checked(root: Path, *paths: str, options: Options = Options()) -> list[str]:  # noqa: B008
    found = check_paths([str(root / each) for each in paths or ("",)], options)
    return sorted({Path(os.path.relpath(each.file, root)).as_posix() for each in found.findings})


def test_ignored_files_are_passed_by(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    tree(tmp_path, "train.py", "old/train.py", "gen/a.py", "gen/kept.py", "gen/deep/b.py", "pkg/scratch.py", "pkg/x.py")
    (tmp_path / ".gitignore").write_text("# made by hand\n/old/\ngen/*\n!gen/kept.py\n!gen/deep/\n")
    (tmp_path / "gen" / "deep" / ".gitignore").write_text("b.py\n")
    (tmp_path / "pkg" / ".gitignore").write_text("scratch*\n")
    assert checked(tmp_path) == ["gen/kept.py", "pkg/x.py", "train.py"]
    assert checked(tmp_path, "pkg") == ["pkg/x.py"]
    assert checked(tmp_path, "pkg/scratch.py") == ["pkg/scratch.py"]


def test_what_the_repository_says_above_the_folder_holds(tmp_path: Path) -> None:
    (tmp_path / ".git" / "info").mkdir(parents=True)
    (tmp_path / ".git" / "info" / "exclude").write_text("mine.py\n")
    (tmp_path / ".gitignore").write_text("b.py\n")
    tree(tmp_path, "in/side/a.py", "in/side/b.py", "in/side/mine.py")
    assert checked(tmp_path, "in/side") == ["in/side/a.py"]
    (tmp_path / "in" / "side" / ".gitignore").write_text("!b.py\n")
    assert checked(tmp_path, "in/side") == ["in/side/a.py", "in/side/b.py"]


def test_environments_and_hidden_folders_are_passed_by(tmp_path: Path) -> None:
    tree(tmp_path, "train.py", ".hidden/a.py", "site-packages/a.py", "tools/env/lib/a.py", "conda/lib/a.py", "env/a.py")
    (tmp_path / "tools" / "env" / "pyvenv.cfg").write_text("")
    (tmp_path / "conda" / "conda-meta").mkdir()
    assert checked(tmp_path) == ["env/a.py", "train.py"]


def test_exclude_counts_from_its_file(tmp_path: Path) -> None:
    tree(tmp_path, "train.py", "third/a.py", "src/third/b.py", "src/old.py")
    (tmp_path / "pyproject.toml").write_text('[tool.firstfault]\nexclude = ["/third", "old.py"]\n')
    assert checked(tmp_path) == ["src/third/b.py", "train.py"]
    assert checked(tmp_path, "src") == ["src/third/b.py"]
    assert checked(tmp_path, "third/a.py") == ["third/a.py"]
    assert checked(tmp_path, "third/a.py", "train.py", options=Options(force_exclude=True)) == ["train.py"]
    also = Options(Config(exclude=((str(tmp_path / "src"), "/third"),)))
    assert checked(tmp_path, options=also) == ["train.py"]


def test_many_files_in_several_processes_give_the_same(tmp_path: Path) -> None:
    tree(tmp_path, *(f"part{number % 7}/train{number}.py" for number in range(120)))
    (tmp_path / "part0" / "train0.py").write_bytes(b"\xff")
    steps: list[tuple[int, int]] = []
    several = check_paths([str(tmp_path)], Options(jobs=2, on_progress=lambda done, of: steps.append((done, of))))
    alone = check_paths([str(tmp_path)], Options(jobs=1))
    assert several == alone
    assert several.files == 120 and len(several.findings) == 119 and len(several.problems) == 1
    assert steps[-1] == (120, 120) and sorted(steps) == steps


def test_a_process_that_ends_costs_its_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from firstfault.lint import check

    tree(tmp_path, *(f"train{number}.py" for number in range(60)))
    real = check.check_text

    def deadly(source: str, path: str, *rest: object) -> object:
        if path.endswith("train59.py"):
            os._exit(3)
        return real(source, path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(check, "check_text", deadly)
    found = check_paths([str(tmp_path)], Options(jobs=2))
    assert any("ended unexpectedly" in each.message for each in found.problems)
    assert len(found.problems) + len(found.findings) == found.files == 60


def test_a_fault_of_ours_costs_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from firstfault.lint import check

    tree(tmp_path, "a.py", "b.py")
    real = check.check_text

    def faulty(source: str, path: str, *rest: object) -> object:
        return 1 // 0 if path.endswith("a.py") else real(source, path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(check, "check_text", faulty)
    found = check_paths([str(tmp_path)])
    assert [Path(each.file).name for each in found.findings] == ["b.py"]
    assert "fault of Firstfault itself (ZeroDivisionError" in found.problems[0].message


# ------------------------------------------------------------------------------------------ git is the judge

NAMES = ("a", "b", "ab", "a.py", "#x", "!y", "a b", "ä")
PARTS = st.sampled_from(
    ["a", "b", "*", "**", "/", "?", "[ab]", "[!a]", "[a-b]", ".py", "!", "#", " ", "\\#", "**/", "/**"]
)
LINES = st.lists(st.lists(PARTS, min_size=1, max_size=4).map("".join), min_size=1, max_size=3)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for outer in NAMES:
        for inner in NAMES:
            (root / outer / "ab").mkdir(parents=True, exist_ok=True)
            (root / outer / "ab" / f"{inner}.f").write_text("")
    return root


@needs_git
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LINES)
@example(["a**/b"])
@example(["a**", "b/a**"])
def test_patterns_mean_what_they_mean_to_git(repository: Path, lines: list[str]) -> None:
    (repository / ".gitignore").write_text("\n".join(lines) + "\n")
    paths = [path for path in repository.rglob("*") if ".git" not in path.relative_to(repository).parts[0]]
    asked = "\0".join(path.relative_to(repository).as_posix() for path in paths).encode()
    command = ["git", "-C", str(repository), "check-ignore", "--no-index", "-z", "-v", "-n", "--stdin"]
    fields = subprocess.run(command, input=asked, capture_output=True).stdout.decode().split("\0")
    by_git = {fields[at + 3]: fields[at + 2] for at in range(0, len(fields) - 3, 4)}
    patterns = patterns_of(lines, str(repository))
    for path in paths:
        name = path.relative_to(repository).as_posix()
        wanted = bool(by_git[name]) and not by_git[name].startswith("!")
        assert is_ignored(repository, path, patterns) == wanted, (lines, name)


def is_ignored(root: Path, path: Path, patterns: object) -> bool:
    chain = [patterns] if patterns else []
    above = [*reversed(path.relative_to(root).parents)][1:]
    return any(is_left_out(str(root / each), (root / each).is_dir(), chain) for each in [*above, path])  # type: ignore[arg-type]
