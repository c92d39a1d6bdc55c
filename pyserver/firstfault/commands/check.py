"""``firstfault check``: findings of scripts and notebooks, printed in one of four formats, or repaired."""

import sys
from typing import TYPE_CHECKING

from firstfault.terminal import has_colour, write

if TYPE_CHECKING:
    import argparse


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    check = commands.add_parser("check", help="find silent faults of accumulation and BatchNorm in training scripts")
    check.add_argument(
        "paths", nargs="+", metavar="PATH", help="scripts, notebooks or folders, or - for standard input"
    )
    check.add_argument("--format", choices=["text", "json"], default="text", help="text for people (default), or JSON")
    check.set_defaults(run=run)


def run(arguments: "argparse.Namespace") -> int:
    from firstfault.lint import finding_to_json
    from firstfault.lint.check import check_paths
    from firstfault.lint.render import to_text

    checked = check_paths(arguments.paths, stdin=sys.stdin.buffer if sys.stdin else None)
    findings = checked.findings
    for problem in checked.problems:
        print(f"firstfault: {problem.path}: {problem.message}", file=sys.stderr)
    if arguments.format == "json":
        import json

        write(json.dumps([finding_to_json(each) for each in findings], indent=1, ensure_ascii=False) + "\n")
    elif findings or not checked.problems:
        write(to_text(findings, has_colour(sys.stdout), checked.files))
    if any(each.severity != "hint" for each in findings):
        return 1
    return 2 if checked.problems else 0
