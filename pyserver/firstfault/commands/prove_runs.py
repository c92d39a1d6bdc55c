"""``firstfault prove --a CMD --b CMD``: two runs of the user's own script, measured one after the other."""

import shlex
from typing import TYPE_CHECKING

from firstfault.terminal import refuse, write

if TYPE_CHECKING:
    import argparse

    from firstfault.prove.experiments.two_runs import Side

_STATUS = {"no-fault": 0, "fault": 1, "inconclusive": 2}


def run(arguments: "argparse.Namespace") -> int:
    from firstfault.prove.experiments.two_runs import compare, to_json, to_text

    if not (arguments.a and arguments.b):
        return refuse("--a and --b belong together: the command of one batch, and that of micro-batches.")
    try:
        commands = [(name, shlex.split(command)) for name, command in (("A", arguments.a), ("B", arguments.b))]
    except ValueError as error:
        return refuse(f"A command cannot be read: {error}.")
    if not all(words for _, words in commands):
        return refuse("--a and --b each need a command.")
    a, b = (_side(name, words, arguments.timeout) for name, words in commands)
    comparison = compare(a, b)
    if arguments.format == "json":
        import json

        write(json.dumps(to_json(comparison), indent=1, ensure_ascii=False) + "\n")
    else:
        write(to_text(comparison))
    return _STATUS[comparison.verdict]


def _side(name: str, command: list[str], timeout: float) -> "Side":
    import sys

    from firstfault.commands.measure import ended_by_signals, say_before
    from firstfault.measuring import findings_of, join, measure
    from firstfault.prove.experiments.two_runs import Proven, side

    findings = findings_of(command)
    say_before(command, 1)
    with ended_by_signals():
        measured, found = measure(command, 1, timeout, output=sys.stderr.fileno())
    judged = [each for each in join(findings, found, measured) if each.state == "proven"]
    return side(name, shlex.join(command), measured, [Proven(each.code, each.name, each.message) for each in judged])
