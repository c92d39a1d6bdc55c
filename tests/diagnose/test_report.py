"""What a report says beside the answer: what was not read, and how it lists what is not the first failure."""

import json
from pathlib import Path

from firstfault import logs
from firstfault.diagnose import diagnose
from firstfault.diagnose.render import to_markdown, to_text
from firstfault.diagnose.report import Report, to_json
from firstfault.library import load
from firstfault.logs.source import Source, from_paths, from_text

FRAME = '  File "/home/ann/lab/train.py", line 3, in main\n    go()\n'
HEAD = "Traceback (most recent call last):\n"


def of(sources: list[Source]) -> Report:
    library = load()
    return diagnose(logs.read(sources, library.prefixes), library)


def reasons(text: str) -> list[str]:
    return [each.reason for each in of([from_text(text, "run.log")]).collateral]


def ranked(rank: int, text: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


def test_skipped_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(f"{HEAD}{FRAME}ValueError: bad row 7\n")
    (tmp_path / "core.77").write_bytes(b"\x7fELF" + b"\x00" * 4000)
    report = of(from_paths([str(tmp_path)]))
    (skipped,) = json.loads(json.dumps(to_json(report)))["read"]["skipped"]
    assert "core.77" in skipped and "binary" in skipped
    assert to_text(report, False).count(skipped) == 1
    assert "core.77" in to_markdown(report)


def test_what_no_signature_knows_is_told_by_its_own_words() -> None:
    text = ranked(1, f"{HEAD}{FRAME}MemoryError") + ranked(1, f"{HEAD}{FRAME}lab.PoolError: pool 3 is empty")
    assert reasons(text) == ["PoolError: pool 3 is empty: later than the first failure."]


def test_a_cut_traceback_is_called_so() -> None:
    text = ranked(1, f"{HEAD}{FRAME}ValueError: bad row 7") + ranked(2, f"{HEAD}{FRAME}")
    assert reasons(text) == ["A traceback without its last line: it can be a consequence."]


def test_of_two_that_may_be_first_neither_is_called_later() -> None:
    text = ranked(1, f"{HEAD}{FRAME}ValueError: bad row 7") + ranked(2, f"{HEAD}{FRAME}MemoryError")
    (reason,) = reasons(text)
    assert reason.endswith("it may have come first as well.")
