"""Check files and folders: the door of the command line."""

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from firstfault.lint import lint
from firstfault.lint.notebook import Notebook
from firstfault.lint.parse import syntax_error
from firstfault.lint.rule import Finding
from firstfault.lint.source import Unreadable, read_source
from firstfault.lint.workspace import Workspace, project_root
from firstfault.text import LineTable, Position, Span

_SKIPPED = {"node_modules", "site-packages", "dist-packages", "__pycache__", "venv", "env", "build", "dist"}
_ENDINGS = (".py", ".ipynb")
SYNTAX_ERROR = "syntax-error"


class Problem(NamedTuple):
    """A path that could not be checked, and why."""

    path: str
    message: str


class Checked(NamedTuple):
    findings: list[Finding]
    problems: list[Problem]
    files: int


def check_paths(paths: Iterable[str], root: str | None = None) -> Checked:
    """The findings of all scripts and notebooks under the paths, sorted by file and place."""
    findings: list[Finding] = []
    problems: list[Problem] = []
    files = 0
    workspaces: dict[str, Workspace] = {}
    for path, top in _scripts(paths, problems):
        files += 1
        try:
            source = read_source(path)
        except Unreadable as error:
            problems.append(Problem(path, str(error)))
            continue
        workspace = workspaces.setdefault(root or top, Workspace(root or top))
        findings += check_text(source, path, workspace)
    findings.sort(key=lambda each: (each.file, each.cell or 0, each.span, each.code))
    return Checked(findings, problems, files)


def check_text(source: str, path: str, workspace: Workspace) -> list[Finding]:
    """The findings of one text; a text that Python cannot read is a finding too, a hint."""
    broken = _syntax_finding(source, path)
    found = lint(source, path, workspace) or []
    return [broken, *found] if broken else found


def _syntax_finding(source: str, path: str) -> Finding | None:
    notebook = Notebook.read(source) if path.endswith(".ipynb") else None
    if path.endswith(".ipynb") and notebook is None:
        start = Position(1, 1)
        return Finding(SYNTAX_ERROR, SYNTAX_ERROR, path, Span(start, start), "hint", "This is not a notebook.", "")
    text = notebook.text if notebook else source.removeprefix("\ufeff")
    error = syntax_error(text)
    if error is None:
        return None
    line = min(max(error.lineno or 1, 1), len(LineTable(text).starts))
    start = Position(line, max(error.offset or 1, 1))
    cell = None
    if notebook and notebook.cells:
        cell, start = notebook.position(start)
    message = f"Python cannot read this: {error.msg.rstrip('.?')}."
    return Finding(SYNTAX_ERROR, SYNTAX_ERROR, path, Span(start, start), "hint", message, "", cell=cell)


def _scripts(paths: Iterable[str], problems: list[Problem]) -> Iterator[tuple[str, str]]:
    """Each script with the folder that its imports may be looked up in. A file named by hand is checked as it is."""
    seen: set[str] = set()
    for path in paths:
        if os.path.isdir(path):
            root = project_root(path)
            for found in _walk(path, problems):
                if os.path.realpath(found) not in seen:
                    seen.add(os.path.realpath(found))
                    yield found, root
        elif not os.path.exists(path):
            problems.append(Problem(path, "There is no such file or folder."))
        elif not path.endswith(_ENDINGS):
            problems.append(Problem(path, "Only .py and .ipynb files are checked."))
        elif os.path.realpath(path) not in seen:
            seen.add(os.path.realpath(path))
            yield path, project_root(path)


def _walk(folder: str, problems: list[Problem]) -> Iterator[str]:
    def unreadable(error: OSError) -> None:
        problems.append(Problem(str(error.filename), error.strerror or "cannot be read"))

    for above, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(each for each in folders if not _is_skipped(above, each))
        for name in sorted(names):
            if name.endswith(_ENDINGS) and not name.startswith("."):
                yield os.path.join(above, name)


def _is_skipped(above: str, name: str) -> bool:
    if name.startswith(".") or name.endswith(".egg-info"):
        return True
    if name in ("venv", "env", "build", "dist"):  # a folder of the user's own may bear such a name
        return name in ("build", "dist") or os.path.exists(os.path.join(above, name, "pyvenv.cfg"))
    return name in _SKIPPED
