"""Check files and folders: the door of the command line."""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import IO, NamedTuple

from firstfault.lint import concerns, findings_of
from firstfault.lint.config import SYNTAX_ERROR, Config
from firstfault.lint.fixing import Fixed, fixed
from firstfault.lint.notebook import Notebook
from firstfault.lint.parse import syntax_error
from firstfault.lint.rule import Applicability, Finding
from firstfault.lint.script import read_script
from firstfault.lint.source import LARGEST, Unreadable, decode_source, read_source
from firstfault.lint.walking import STDIN, Problem, Script, configs, scripts
from firstfault.lint.workspace import Workspace, active_environment
from firstfault.text import LineTable, Position, Span

__all__ = ["Checked", "Options", "Problem", "Repair", "check_paths", "check_text"]

OnProgress = Callable[[int, int], None]  # how many files are done, of how many


class Options(NamedTuple):
    config: Config = Config()  # what the command line says; it stands before what the projects say
    allowed: frozenset[Applicability] = frozenset()  # the fixes to be applied
    force_exclude: bool = False  # also for files that are named by hand
    root: str | None = None
    jobs: int = 0  # processes; 0: as many as there is work and processors for
    on_progress: OnProgress | None = None


class Repair(NamedTuple):
    """A file that has another text after its fixes. Nothing is written yet."""

    path: str
    source: str
    fixed: Fixed


class Checked(NamedTuple):
    findings: list[Finding]  # what is left after the repairs
    problems: list[Problem]
    files: int
    repairs: list[Repair]
    texts: dict[str, str]  # of what is no file


class Result(NamedTuple):
    """What one file gave."""

    findings: list[Finding]
    problem: Problem | None = None
    repair: Repair | None = None


def check_paths(paths: Iterable[str], options: Options = Options(), stdin: IO[bytes] | None = None) -> Checked:  # noqa: B008
    """The findings of all scripts and notebooks under the paths (``-`` is ``stdin``), sorted by file and place.

    Raises ConfigError.
    """
    from firstfault.lint.pool import run

    problems: list[Problem] = []
    todo = list(scripts(paths, configs(options.config), problems.append, options.force_exclude))
    on_disk = [each._replace(root=options.root or each.root) for each in todo if each.path != STDIN]
    texts: dict[str, str] = {}
    results = [_check_stdin(each, stdin, options.allowed, texts) for each in todo if each.path == STDIN]
    results += run(on_disk, options.allowed, options.jobs, options.on_progress)
    findings = [finding for each in results for finding in each.findings]
    findings.sort(key=lambda each: (each.file, each.cell or 0, each.span, each.code))
    problems += [each.problem for each in results if each.problem is not None]
    repairs = sorted((each.repair for each in results if each.repair is not None), key=lambda each: each.path)
    return Checked(findings, problems, len(todo), repairs, texts)


def check_files(files: Iterable[Script], allowed: frozenset[Applicability]) -> Iterator[Result]:
    """Each file's result, in this process. A fault of ours costs the file that it is met in, and is told."""
    workspaces: dict[str, Workspace] = {}
    for file in files:
        workspace = workspaces.setdefault(file.root, Workspace(file.root, environment=active_environment()))
        try:
            yield _result(read_source(file.path), file.path, workspace, file.config, allowed)
        except Unreadable as error:
            yield Result([], Problem(file.path, str(error)))
        except Exception as error:  # one file of many; the others are checked
            yield Result([], Problem(file.path, _fault_of_ours(error)))


def check_text(source: str, path: str, workspace: Workspace, config: Config = Config()) -> list[Finding]:  # noqa: B008
    """The findings of one text; a text that Python cannot read is a finding too, a hint."""
    script = read_script(source, path) if concerns(source) else None
    problem = script.problem if script else None
    broken = _syntax_finding(source, path, problem) if script is None or problem else None
    found = findings_of(script, workspace, config) if script else []
    return [broken, *found] if broken and config.allows(broken.code, broken.name) else found


def _result(source: str, path: str, workspace: Workspace, config: Config, allowed: frozenset[Applicability]) -> Result:
    if not allowed:
        return Result(check_text(source, path, workspace, config))
    after = fixed(source, path, lambda text: check_text(text, path, workspace, config), allowed)
    return Result(list(after.left), None, Repair(path, source, after) if after.text != source else None)


def _check_stdin(
    file: Script, stream: IO[bytes] | None, allowed: frozenset[Applicability], texts: dict[str, str]
) -> Result:
    try:
        if stream is None:
            raise Unreadable("Standard input is closed.")
        source = decode_source(stream.read(LARGEST + 1))
    except Unreadable as error:
        return Result([], Problem(STDIN, str(error)))
    path = _stdin_name(source)
    texts[path] = source
    return _result(source, path, Workspace(file.root, environment=active_environment()), file.config, allowed)


def _stdin_name(source: str) -> str:
    """A notebook has no name to tell by; no training script begins with a brace."""
    is_notebook = source.lstrip("\ufeff \t\r\n").startswith("{") and Notebook.read(source)
    return f"{STDIN}.ipynb" if is_notebook else STDIN


def _syntax_finding(source: str, path: str, error: SyntaxError | None) -> Finding | None:
    notebook = Notebook.read(source) if path.endswith(".ipynb") else None
    if path.endswith(".ipynb") and notebook is None:
        return _unreadable(path, Position(1, 1), "This is not a notebook.", None)
    text = notebook.text if notebook else source.removeprefix("\ufeff")
    error = error or syntax_error(text)
    if error is None:
        return None
    line = min(max(error.lineno or 1, 1), len(LineTable(text).starts))
    start, cell = Position(line, max(error.offset or 1, 1)), None
    if notebook and notebook.cells:
        cell, start = notebook.position(start)
    return _unreadable(path, start, _words(error), cell)


def _words(error: SyntaxError) -> str:
    said = error.msg or "invalid syntax"
    if said.startswith("Missing parentheses in call to 'print'"):
        return "This is Python 2, which is not checked: `print` has no parentheses."
    return f"Python cannot read this: {said.rstrip('.?')}."


def _unreadable(path: str, start: Position, message: str, cell: int | None) -> Finding:
    return Finding(SYNTAX_ERROR, SYNTAX_ERROR, path, Span(start, start), "hint", message, "", cell=cell)


def _fault_of_ours(error: Exception) -> str:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    place = f" at {os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno}" if at else ""
    what = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return f"It was not checked, by a fault of Firstfault itself ({what}{place}); please report it."
