"""The command line: diagnose, check, explain, serve. Imports are inside the commands, so that each starts quickly."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, cast

from firstfault import __version__
from firstfault.terminal import has_colour, refuse, write

if TYPE_CHECKING:
    import argparse

    from firstfault.logs.source import Source

DESCRIPTION = """\
Finds the first fault of a PyTorch training run. Everything is read on this machine; nothing is sent.

  firstfault diagnose run.log            what failed first, on which rank, and what to do
  firstfault diagnose logs/              a folder of rank logs is one job
  some command 2>&1 | firstfault diagnose -
  firstfault check train.py src/         silent faults of gradient accumulation and BatchNorm
  firstfault measure -- python train.py  runs the script for two optimizer steps, and proves or refutes its faults
  firstfault prove probe.py              compares accumulated gradients with the objective, on a probe of your code
  firstfault explain cuda-oom            the page of a failure or a rule (GA101)
"""
EXIT_STATUS = """\
exit status: diagnose: 0 no failure, 1 a failure found; check: 0 clean or hints only, 1 findings;
measure: 0 no fault proven, 1 a fault proven, 2 nothing measured; prove: 0 no fault, 1 a fault, 2 inconclusive;
all: 2 bad usage or unreadable input
"""


def run() -> NoReturn:
    """The program: ``main``, then an end without taking every value apart, a tenth of a small diagnosis."""
    status = main()
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - contextlib would be loaded for nothing else
            stream.flush()
        except (OSError, ValueError):
            pass  # What could not be written has been said; it must not be said again.
    os._exit(status)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the answer is the exit status."""
    _open_closed_streams()
    arguments = _plain_diagnose(sys.argv[1:] if argv is None else argv) or _parse(argv)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader (head, less) has seen enough; Python must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # Status 1 would say that a failure was found.
        return refuse(_fault_of_ours(error))


def _open_closed_streams() -> None:
    """A caller may have closed standard output or error (``>&-``): what is printed there is lost, as it asked."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - open until the end


def _fault_of_ours(error: Exception) -> str:
    """The last net, in words: what was not foreseen, and where, so that it can be reported."""
    if isinstance(error, OSError) and error.filename is None:
        return f"The answer could not be written: {error.strerror or error}."
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    place = f" at {os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno}" if at else ""
    what = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return f"A fault of Firstfault itself, not of your input ({what}{place}). Nothing was answered; please report it."


def _plain_diagnose(argv: Sequence[str]) -> "argparse.Namespace | None":
    """``diagnose PATH...`` and nothing else, the command in a hurry: argparse alone would be a fifth of its time."""
    if len(argv) < 2 or argv[0] != "diagnose" or any(word != "-" and word.startswith("-") for word in argv):
        return None
    import gc
    from types import SimpleNamespace

    gc.disable()  # One run makes many small values and no cycles; collecting only costs time.
    return cast("argparse.Namespace", SimpleNamespace(run=_diagnose, paths=list(argv[1:]), format="text"))


def _parse(argv: Sequence[str] | None) -> "argparse.Namespace":
    return _parser().parse_args(argv)


def _parser() -> "argparse.ArgumentParser":
    import argparse

    from firstfault.commands import check, measure, prove

    parser = argparse.ArgumentParser(
        prog="firstfault",
        description=DESCRIPTION,
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"firstfault {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_diagnose(commands)
    check.add(commands)
    measure.add(commands)
    prove.add(commands)
    _add_explain(commands)
    serve = commands.add_parser("serve", help="run the language server on standard input and output")
    serve.set_defaults(run=_serve)
    return parser


def _add_diagnose(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    diagnose = commands.add_parser("diagnose", help="say which failure came first in logs, and what to do")
    diagnose.add_argument("paths", nargs="+", metavar="PATH", help="log files or folders, or - for standard input")
    diagnose.add_argument(
        "--format",
        choices=["text", "json", "markdown"],
        default="text",
        help="text for people (default), JSON or Markdown",
    )
    diagnose.set_defaults(run=_diagnose)


def _add_explain(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    explain = commands.add_parser("explain", help="print the page of a failure or a rule")
    what = explain.add_mutually_exclusive_group(required=True)
    what.add_argument("name", metavar="ID-OR-CODE", nargs="?", help="cuda-oom, GA101, mean-of-means")
    what.add_argument("--search", metavar="TEXT", help="the pages that an error's text, or a few words, belong to")
    what.add_argument("--list", action="store_true", help="all failures by category, and all rules")
    explain.set_defaults(run=_explain)


def _diagnose(arguments: "argparse.Namespace") -> int:
    import time

    from firstfault import logs
    from firstfault.diagnose import diagnose
    from firstfault.library import LibraryError, load
    from firstfault.logs.source import Unreadable

    started = time.perf_counter()
    try:
        library = load()
        log = logs.read(_sources(arguments.paths), library.prefixes)
    except (Unreadable, LibraryError) as error:
        return refuse(str(error))
    report = diagnose(log, library)
    report = report._replace(read=report.read._replace(seconds=round(time.perf_counter() - started, 3)))
    _print_report(report, arguments.format)
    return 0 if report.verdict == "no-failure" else 1


def _sources(paths: "Sequence[str]") -> "list[Source]":
    """What is to be read, each once: a folder and a file in it, or a path that is named twice, are no two failures."""
    from firstfault.logs.source import Source, Unreadable, from_paths

    found: dict[str, Source] = {}
    for path in paths:
        if path == "-" and sys.stdin is None:
            raise Unreadable("Standard input is closed.")
        for source in [Source("<stdin>", stream=sys.stdin.buffer)] if path == "-" else from_paths([path]):
            found.setdefault(os.path.realpath(source.path) if source.path else "-", source)
    return list(found.values())


def _print_report(report: object, form: str) -> None:
    from firstfault.diagnose import render
    from firstfault.diagnose.report import Report, to_json

    assert isinstance(report, Report)
    if form == "json":
        import json

        write(json.dumps(to_json(report), indent=1, ensure_ascii=False) + "\n")
    elif form == "markdown":
        write(render.to_markdown(report))
    else:
        write(render.to_text(report, has_colour(sys.stdout)))


def _explain(arguments: "argparse.Namespace") -> int:
    from firstfault.library import LibraryError

    try:
        return _explained(arguments)
    except LibraryError as error:
        return refuse(str(error))


def _explained(arguments: "argparse.Namespace") -> int:
    from firstfault.explain import catalogue, closest, page, search

    if arguments.list:
        write(catalogue())
        return 0
    if arguments.search is not None:
        return _print_found(arguments.search, search(arguments.search))
    text = page(arguments.name)
    if text is None:
        near = closest(arguments.name)
        hint = f" Did you mean {', '.join(near)}?" if near else " firstfault explain --list names all."
        return refuse(f"There is no failure or rule {arguments.name}.{hint}")
    write(text)
    return 0


def _print_found(text: str, found: list[tuple[str, str]]) -> int:
    if not found:
        return refuse(f"No page holds {text!r}.")
    width = max(len(name) for name, _ in found)
    write("".join(f"{name:<{width}}  {title}\n" for name, title in found))
    return 0


def _serve(arguments: "argparse.Namespace") -> int:
    if sys.stdin is None:
        return refuse("Standard input is closed; the language server is asked there.")
    from firstfault.lsp.server import serve

    serve()
    return 0
