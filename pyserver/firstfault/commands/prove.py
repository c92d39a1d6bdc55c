"""``firstfault prove``: the A/B diagnostic on a probe, or on two runs; and the scaffold of a probe for a script."""

import importlib.util
import os
import shutil
import sys
from typing import TYPE_CHECKING

from firstfault.terminal import has_colour, refuse, write

if TYPE_CHECKING:
    import argparse

    from firstfault.prove.experiments.proof import Refused, Setting, Verdict

_STATUS = {"no-fault": 0, "fault": 1, "inconclusive": 2}


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    prove = commands.add_parser(
        "prove", help="compare accumulated gradients with the objective, on a probe of your code"
    )
    prove.add_argument("probe", nargs="?", metavar="PROBE", help="a file with build() and batch(n); see docs/probe.md")
    prove.add_argument(
        "--python", metavar="PATH", help="the Python of your training (default: the active environment's)"
    )
    prove.add_argument(
        "--micro-batches", type=int, default=4, metavar="K", help="micro-batches of a window (default 4)"
    )
    prove.add_argument("--samples", type=int, metavar="N", help="samples of a window (default: two a micro-batch)")
    prove.add_argument("--ranks", type=int, default=1, metavar="W", help="also run W processes together (gloo, CPU)")
    prove.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS", help="time limit (default 300)")
    prove.add_argument("--format", choices=["text", "json"], default="text", help="text for people (default), or JSON")
    prove.add_argument("--scaffold", metavar="SCRIPT", help="write a probe for a training script, to fill in")
    prove.add_argument("-o", "--output", metavar="FILE", help="where --scaffold writes to (default: standard output)")
    prove.add_argument("--a", metavar="COMMAND", help="instead of a probe: the run that takes its window in one batch")
    prove.add_argument("--b", metavar="COMMAND", help="and the run that accumulates; both are measured, like measure")
    prove.set_defaults(run=run)


def run(arguments: "argparse.Namespace") -> int:
    if arguments.scaffold:
        return _scaffold(arguments)
    if arguments.a or arguments.b:
        from firstfault.commands import prove_runs

        return prove_runs.run(arguments)
    why = _unusable(arguments)
    if why:
        return refuse(why)
    from firstfault.commands.measure import ended_by_signals
    from firstfault.prove.experiments.proof import Refused, prove

    try:
        with ended_by_signals():
            verdict = prove(_setting(arguments))
    except Refused as refused:
        return _refused(refused, arguments.format)
    _print(verdict, arguments.format)
    return _STATUS[verdict.verdict]


def _unusable(arguments: "argparse.Namespace") -> str:
    parts = arguments.micro_batches * arguments.ranks
    if not arguments.probe:
        return "Name a probe, or --scaffold SCRIPT to write one; docs/probe.md tells what a probe is."
    if not os.path.isfile(arguments.probe):
        return f"There is no file {arguments.probe}."
    if arguments.micro_batches < 1 or arguments.ranks < 1 or parts < 2:
        return "An experiment needs two micro-batches or two ranks at least."
    if arguments.samples is not None and (arguments.samples < parts or arguments.samples % parts):
        return f"--samples must be a multiple of {parts}, the micro-batches of all ranks."
    if arguments.timeout <= 0:
        return "--timeout must be positive."
    return ""


def _setting(arguments: "argparse.Namespace") -> "Setting":
    from firstfault.prove.experiments.proof import Setting

    return Setting(
        arguments.probe,
        arguments.python or active_python(),
        arguments.micro_batches,
        arguments.samples or 2 * arguments.micro_batches * arguments.ranks,
        arguments.ranks,
        arguments.timeout,
    )


def active_python() -> str:
    """The Python of the active environment; else our own, if it has torch; else the one on the path."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        folder = os.environ.get(variable)
        for name in ("bin/python", "Scripts/python.exe", "python.exe") if folder else ():
            if os.path.isfile(os.path.join(folder or "", name)):
                return os.path.join(folder or "", name)
    if importlib.util.find_spec("torch"):
        return sys.executable
    return shutil.which("python") or shutil.which("python3") or sys.executable


def _print(verdict: "Verdict", form: str) -> None:
    from firstfault.prove.experiments import render

    if form == "json":
        import json

        write(json.dumps(render.to_json(verdict), indent=1, ensure_ascii=False) + "\n")
    else:
        write(render.to_text(verdict, has_colour(sys.stdout)))


def _refused(refused: "Refused", form: str) -> int:
    if form == "json":
        import json

        answer = {"schema": 1, "verdict": "inconclusive", "refused": refused.sentence, "trace": refused.trace}
        write(json.dumps(answer, indent=1, ensure_ascii=False) + "\n")
        return _STATUS["inconclusive"]
    status = refuse(refused.sentence)
    if refused.trace:
        print(refused.trace, file=sys.stderr)
    return status


def _scaffold(arguments: "argparse.Namespace") -> int:
    from firstfault.lint.source import Unreadable, read_source
    from firstfault.scaffold import scaffold

    try:
        text = scaffold(read_source(arguments.scaffold), arguments.scaffold)
        if arguments.output is None:
            write(text)
        else:
            with open(arguments.output, "x", encoding="utf-8", newline="\n") as file:
                file.write(text)
    except Unreadable as error:
        return refuse(str(error))
    except FileExistsError:
        return refuse(f"{arguments.output} exists already; it is left as it is.")
    except OSError as error:
        return refuse(f"{arguments.output} cannot be written: {error.strerror}.")
    return 0
