"""What two simple answers are worth beside Firstfault's: ``python scripts/baselines.py FOLDER [FOLDER ...]``.

A folder holds labelled cases: ``*/expected.json`` beside ``log.txt`` or ``logs/``. Of a label are read ``accept`` and
``tolerate`` (classes of failures), ``initiating_rank`` (null where the text does not tell it) and ``multi_rank``.

torchrun's table: its root cause row; the class is that of the traceback in it, else of its exit code.
The last line: the last line of the text that names an exception, with the rank before it.
Both get the class that Firstfault's signatures give to their text, which is more than either says by itself.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from firstfault import logs
from firstfault.diagnose import diagnose
from firstfault.diagnose.match import Event, best, block_event
from firstfault.library import Library, load
from firstfault.logs.log import Log
from firstfault.logs.source import from_paths

EXCEPTION = re.compile(
    r"(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout))(?:: (?P<message>.*))?$"
)
FIGURES = ("class right", "class tolerated", "class wrong", "no answer")
RANK_FIGURES = ("rank right", "another rank", "no rank", "rank named where none is known")


class Answer(NamedTuple):
    signature: str | None
    rank: int | str | None


def main() -> int:
    folders = [Path(each) for each in sys.argv[1:]]
    if not folders:
        print(__doc__)
        return 2
    library = load()
    for folder in folders:
        print_table(folder, library)
    return 0


def print_table(folder: Path, library: Library) -> None:
    counts = {name: Counter[str]() for name in METHODS}
    cases = sorted(path.parent for path in folder.glob("*/expected.json"))
    for case in cases:
        expected = json.loads((case / "expected.json").read_text(encoding="utf-8"))
        text = case / "log.txt"
        log = logs.read(from_paths([str(text if text.exists() else case / "logs")]), library.prefixes)
        for name, method in METHODS.items():
            counts[name].update(graded(method(log, library), expected))
    print(f"{folder.name}: {len(cases)} cases")
    print(f"  {'':32}" + "".join(f"{name:>18}" for name in METHODS))
    for figure in (*FIGURES, *RANK_FIGURES):
        print(f"  {figure:32}" + "".join(f"{counts[name][figure]:>18}" for name in METHODS))


def graded(answer: Answer, expected: dict[str, object]) -> Iterable[str]:
    accepted, tolerated = expected["accept"], expected.get("tolerate") or []
    assert isinstance(accepted, list) and isinstance(tolerated, list)
    if answer.signature is None:
        yield "no answer"
    elif answer.signature in accepted:
        yield "class right"
    else:
        yield "class tolerated" if answer.signature in tolerated else "class wrong"
    truth = expected["initiating_rank"]
    if truth is not None:
        yield "rank right" if answer.rank == truth else "no rank" if answer.rank is None else "another rank"
    elif expected["multi_rank"] and answer.rank not in (None, "all"):
        yield "rank named where none is known"


def torchruns_table(log: Log, library: Library) -> Answer:
    row = next((each for each in log.rows if each.root), None)
    if row is None:
        return Answer(None, None)
    signatures = list(library.signatures.values())
    if row.error is not None:
        found = best(block_event(row.error), signatures)
        return Answer(found.signature.id if found else "user-exception", row.rank)
    found = best(Event(None, None, None, "", row.exitcode), library.signatures.with_exit_codes())
    return Answer(found.signature.id if found else "child-failed", row.rank)


def last_line(log: Log, library: Library) -> Answer:
    for line in reversed(log.lines):
        named = EXCEPTION.match(line.text.strip())
        if named:
            event = Event(named["type"], named["message"] or "", None, "", None)
            found = best(event, list(library.signatures.values()))
            return Answer(found.signature.id if found else "user-exception", line.tags.rank)
    return Answer(None, None)


def firstfault(log: Log, library: Library) -> Answer:
    first = diagnose(log, library).initiating
    return Answer(first.signature, first.rank) if first else Answer("no-failure", None)


METHODS: dict[str, Callable[[Log, Library], Answer]] = {
    "torchrun's table": torchruns_table,
    "last line": last_line,
    "Firstfault": firstfault,
}

if __name__ == "__main__":
    sys.exit(main())
