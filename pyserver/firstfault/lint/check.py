"""Check files and folders: the door of the command line."""

import os
from collections.abc import Iterable, Iterator
from typing import IO, NamedTuple

from firstfault.lint import lint
from firstfault.lint.notebook import Notebook
from firstfault.lint.parse import syntax_error
from firstfault.lint.rule import Finding
from firstfault.lint.source import LARGEST, Unreadable, decode_source, read_source
from firstfault.lint.workspace import Workspace, project_root
from firstfault.text import LineTable, Position, Span

_SKIPPED = {"node_modules", "site-packages", "dist-packages", "__pycache__", "venv", "env", "build", "dist"}
_ENDINGS = (".py", ".ipynb")
SYNTAX_ERROR = "syntax-error"
STDIN = "<stdin>"


class Problem(NamedTuple):
    """A path that could not be checked, and why."""

    path: str
    message: str


class Checked(NamedTuple):
    findings: list[Finding]
    problems: list[Problem]
    files: int


def check_paths(paths: Iterable[str], root: str | None = None, stdin: IO[bytes] | None = None) -> Checked:
    """The findings of all scripts and notebooks under the paths (``-`` is ``stdin``), sorted by file and place."""
    findings: list[Finding] = []
    problems: list[Problem] = []
    files = 0
    workspaces: dict[str, Workspace] = {}
    for path, top in _scripts(paths, problems):
        files += 1
        try:
            source = _read_stdin(stdin) if path == STDIN else read_source(path)
        except Unreadable as error:
            problems.append(Problem(path, str(error)))
            continue
        workspace = workspaces.setdefault(root or top, Workspace(root or top))
        findings += check_text(source, _stdin_name(source) if path == STDIN else path, workspace)
    findings.sort(key=lambda each: (each.file, each.cell or 0, each.span, each.code))
    return Checked(findings, problems, files)


def _read_stdin(stream: IO[bytes] | None) -> str:
    if stream is None:
        raise Unreadable("Standard input is closed.")
    return decode_source(stream.read(LARGEST + 1))


def _stdin_name(source: str) -> str:
    """A notebook has no name to tell by; no training script begins with a brace."""
    is_notebook = source.lstrip("\ufeff \t\r\n").startswith("{") and Notebook.read(source)
    return f"{STDIN}.ipynb" if is_notebook else STDIN


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
        if path == "-":
            if STDIN not in seen:
                seen.add(STDIN)
                yield STDIN, os.getcwd()
        elif os.path.isdir(path):
            root = project_root(path)
            below = list(_walk(path, problems))
            if not below:
                problems.append(Problem(path, "There is no .py or .ipynb file in it."))
            for found in below:
                if os.path.realpath(found) not in seen:
                    seen.add(os.path.realpath(found))
                    yield found, root
        elif not os.path.exists(path):
            problems.append(Problem(path or "''", "There is no such file or folder."))
        elif not os.path.isfile(path):
            problems.append(Problem(path, "It is neither a file nor a folder."))
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
            path = os.path.join(above, name)
            # A pipe would never end, and a link to nowhere is no script.
            if name.endswith(_ENDINGS) and not name.startswith(".") and os.path.isfile(path):
                yield path


def _is_skipped(above: str, name: str) -> bool:
    if name.startswith(".") or name.endswith(".egg-info"):
        return True
    if name in ("venv", "env", "build", "dist"):  # a folder of the user's own may bear such a name
        return name in ("build", "dist") or os.path.exists(os.path.join(above, name, "pyvenv.cfg"))
    return name in _SKIPPED
