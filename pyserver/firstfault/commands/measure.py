"""``firstfault measure -- python train.py ARGS...``: runs the command with probes on, and judges what they saw."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from firstfault.terminal import refuse, write

if TYPE_CHECKING:
    import argparse

    from firstfault.prove.measured import Measured

_BEFORE = """\
firstfault: running {command}
firstfault: it is ended after {windows} optimizer steps. Until then it is the real run: checkpoints, logs and uploads of
firstfault: the script are its own and are not held back. Firstfault itself writes nothing into your folders.
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    measure = commands.add_parser("measure", help="run a training command for a few steps, and measure its faults")
    measure.add_argument("--windows", type=int, default=2, metavar="K", help="optimizer steps to measure (default 2)")
    measure.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="seconds until the run is ended (default 600)"
    )
    measure.add_argument("--format", choices=["text", "json"], default="text", help="text (default), or JSON")
    measure.add_argument("--picture", metavar="FILE", help="also write the weights of the targets as an SVG picture")
    measure.add_argument(
        "command", nargs="+", metavar="COMMAND", help="behind --, as you start it: python train.py ..."
    )
    measure.set_defaults(run=run)


def run(arguments: "argparse.Namespace") -> int:
    if arguments.windows < 1 or arguments.timeout <= 0:
        return refuse("--windows and --timeout must be greater than 0.")
    from firstfault.measuring import findings_of, join, measure, right
    from firstfault.prove.render import json_text, to_text

    findings = findings_of(arguments.command)
    say_before(arguments.command, arguments.windows)
    with ended_by_signals():
        # What the script prints goes to standard error, so that standard output is the answer alone.
        measured, found = measure(arguments.command, arguments.windows, arguments.timeout, output=sys.stderr.fileno())
    judged = join(findings, found, measured)
    text = (
        json_text(measured, judged) if arguments.format == "json" else to_text(measured, judged, right(judged, found))
    )
    write(text)
    if arguments.picture and not _draw(arguments.picture, measured):
        return 2
    if any(each.state == "proven" for each in judged):
        return 1
    return 0 if measured.complete else 2


def _draw(path: str, measured: "Measured") -> bool:
    from firstfault.prove.picture import to_svg

    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(to_svg(measured))
    except OSError as error:
        refuse(f"The picture could not be written: {path}: {error.strerror}.")
        return False
    return True


def say_before(command: Sequence[str], windows: int) -> None:
    import shlex

    sys.stderr.write(_BEFORE.format(command=shlex.join(command), windows=windows))
    sys.stderr.flush()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """A terminal that closes, or a kill, ends the measured processes too: both become what Ctrl-C is."""
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]

    def interrupt(*_: object) -> None:
        for number in numbers:  # a second Ctrl-C must not stop the cleaning up
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    except KeyboardInterrupt:
        with suppress(OSError):  # the terminal may be gone
            sys.stderr.write("\nfirstfault: Interrupted; the run and its processes were ended.\n")
            sys.stderr.flush()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
