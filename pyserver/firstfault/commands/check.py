"""``firstfault check``: findings of scripts and notebooks, printed in one of four formats, or repaired."""

import sys
from typing import TYPE_CHECKING

from firstfault.terminal import has_colour, refuse, write

if TYPE_CHECKING:
    import argparse

    from firstfault.lint.check import Checked, Options
    from firstfault.lint.config import Config

_EPILOG = """\
Settings stand in the nearest pyproject.toml, in its table [tool.firstfault]: select, ignore, exclude, severity,
variable-length, grad-accumulation.

exit status: 0 clean, or hints only; 1 findings that are left, or, with --diff, something to fix; 2 bad usage, or a file
that could not be read or written
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    import argparse

    check = commands.add_parser(
        "check",
        help="find silent faults of accumulation and BatchNorm in training scripts",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument(
        "paths", nargs="+", metavar="PATH", help="scripts, notebooks or folders, or - for standard input"
    )
    forms = ["text", "json", "sarif", "github"]
    form = "text for people (default), JSON, SARIF 2.1.0, or annotations of GitHub's workflows"
    check.add_argument("--format", choices=forms, default="text", help=form)
    check.add_argument("--fix", action="store_true", help="apply the safe fixes to the files")
    check.add_argument("--diff", action="store_true", help="print what --fix would change, and change nothing")
    check.add_argument("--unsafe-fixes", action="store_true", help="with --fix or --diff: unsafe and partial ones too")
    _add_choices(check)
    check.set_defaults(run=run)


def _add_choices(check: "argparse.ArgumentParser") -> None:
    rules = "codes (GA101), names (mean-of-means) or beginnings of codes (GA2), separated by commas"
    check.add_argument("--select", metavar="RULES", help=f"these rules only: {rules}")
    check.add_argument("--ignore", metavar="RULES", help="all rules but these")
    out = "leave out what the pattern matches, as in a .gitignore; may be given several times"
    check.add_argument("--exclude", metavar="PATTERN", action="append", default=[], help=out)
    check.add_argument("--force-exclude", action="store_true", help="leave out excluded files that are named, too")
    check.add_argument("--jobs", metavar="N", type=_number_of_jobs, default=0, help="processes (default: processors)")


def _number_of_jobs(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def run(arguments: "argparse.Namespace") -> int:
    from firstfault.commands.progress import Progress
    from firstfault.lint.check import check_paths
    from firstfault.lint.config import ConfigError

    if arguments.unsafe_fixes and not (arguments.fix or arguments.diff):
        return refuse("--unsafe-fixes says which fixes are applied; --fix or --diff must be given, too.")
    if arguments.fix and not arguments.diff and "-" in arguments.paths:
        return refuse("Standard input cannot be fixed; --diff shows what would change.")
    progress = Progress(sys.stderr)
    try:
        options = _options(arguments)._replace(on_progress=progress)
        checked = check_paths(arguments.paths, options, sys.stdin.buffer if sys.stdin else None)
    except ConfigError as error:
        return refuse(str(error))
    finally:
        progress.clear()
    return _answer(arguments, checked)


def _options(arguments: "argparse.Namespace") -> "Options":
    from firstfault.lint.check import Options
    from firstfault.lint.fixing import EVERY, SAFE

    fixes = arguments.fix or arguments.diff
    allowed = EVERY if fixes and arguments.unsafe_fixes else SAFE if fixes else frozenset()
    return Options(_config(arguments), allowed, arguments.force_exclude, None, arguments.jobs)


def _config(arguments: "argparse.Namespace") -> "Config":
    import os

    from firstfault.lint.config import Config, selectors

    def given(name: str) -> "frozenset[str] | None":
        words = getattr(arguments, name)
        return None if words is None else selectors(words.split(","), f"--{name}")

    exclude = tuple((os.getcwd(), each) for each in arguments.exclude)
    return Config(given("select"), given("ignore") or frozenset(), exclude)


def _answer(arguments: "argparse.Namespace", checked: "Checked") -> int:
    unwritten = _write_repairs(checked) if arguments.fix and not arguments.diff else 0
    for problem in checked.problems:
        print(f"firstfault: {problem.path}: {problem.message}", file=sys.stderr)
    if arguments.diff:
        return _print_diff(checked)
    _print_findings(arguments.format, checked)
    if any(each.severity != "hint" for each in checked.findings):
        return 1
    return 2 if checked.problems or unwritten else 0


def _write_repairs(checked: "Checked") -> int:
    """Write what was repaired; the answer is how many files could not be written."""
    from firstfault.lint.source import Unreadable
    from firstfault.lint.writing import write_fixed

    failed = 0
    for repair in list(checked.repairs):
        try:
            write_fixed(repair.path, repair.source, repair.fixed.text)
        except Unreadable as error:
            print(f"firstfault: {repair.path}: {error}", file=sys.stderr)
            checked.repairs.remove(repair)
            failed += 1
    return failed


def _print_diff(checked: "Checked") -> int:
    from firstfault.lint.diff import unified

    colour = has_colour(sys.stdout)
    for repair in checked.repairs:
        write(unified(repair.path, repair.source, repair.fixed.text, colour))
    count = sum(len(each.fixed.fixed) for each in checked.repairs)
    files = f"{len(checked.repairs)} file{'' if len(checked.repairs) == 1 else 's'}"
    if count:
        print(f"{count} fix{'' if count == 1 else 'es'} would change {files}.", file=sys.stderr)
    elif not checked.problems:
        print("No fix would change anything.", file=sys.stderr)
    return 1 if count else 2 if checked.problems else 0


def _print_findings(form: str, checked: "Checked") -> None:
    if form == "text":
        from firstfault.lint.render import to_text

        if checked.findings or checked.repairs or not checked.problems:
            write(to_text(checked, has_colour(sys.stdout), _width()))
        return
    if form == "github":
        from firstfault.lint.annotations import to_annotations

        write(to_annotations(checked.findings))
        return
    import json

    write(json.dumps(_values(form, checked), indent=1, ensure_ascii=False) + "\n")


def _width() -> int | None:
    """Of the terminal; a file and another program get each message on one line."""
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _values(form: str, checked: "Checked") -> object:
    from firstfault.lint import finding_to_json
    from firstfault.lint.sarif import to_sarif

    return to_sarif(checked) if form == "sarif" else [finding_to_json(each) for each in checked.findings]
