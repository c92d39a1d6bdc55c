"""Order in time: by stamps where there are any, never by the order of lines of different ranks or files."""

import json
from pathlib import Path

import pytest

from firstfault import logs
from firstfault.diagnose import diagnose
from firstfault.diagnose.render import to_text
from firstfault.diagnose.report import Report
from firstfault.library import load
from firstfault.logs.source import Source, from_paths, from_text

BODY = '  File "/home/ann/lab/train.py", line 31, in step\n    loss.backward()\n'


def of(sources: list[Source]) -> Report:
    library = load()
    return diagnose(logs.read(sources, library.prefixes), library)


def diagnosed(text: str) -> Report:
    return of([from_text(text, "run.log")])


def first(report: Report) -> tuple[str, object]:
    assert report.initiating is not None
    return report.initiating.exception, report.initiating.rank


def failed(rank: int, last: str, time: str | None = None, host: str = "") -> str:
    """A traceback of one rank, under a log record where there is a time."""
    lines = ["Traceback (most recent call last):", *BODY.splitlines(), last]
    prefix = f"[{host}:{rank % 8}]:[rank{rank}]: " if host else f"[rank{rank}]: "
    record = [f"[{host}:{rank % 8}]:" if host else "", f"[rank{rank}]: {time} ERROR training failed\n"] if time else []
    return "".join(record) + "".join(f"{prefix}{line}\n" for line in lines)


def test_different_errors_of_two_ranks_without_times_have_no_first() -> None:
    report = diagnosed(failed(3, "ValueError: bad row 7") + failed(1, "ZeroDivisionError: division by zero"))
    assert report.verdict == "symptom-only"
    assert first(report)[1] is None
    assert [each.rank for each in report.suspects] == [1, 3]
    assert "time of each error" in report.missing[0].fact


@pytest.mark.parametrize("swapped", [False, True])
def test_time_stamps_tell_the_first_whatever_the_order_of_lines(swapped: bool) -> None:
    texts = [
        failed(3, "ValueError: bad row 7", "2026-03-04 10:00:09,100"),
        failed(1, "ZeroDivisionError: division by zero", "2026-03-04 10:00:01,200"),
    ]
    report = diagnosed("".join(reversed(texts) if swapped else texts))
    assert first(report) == ("ZeroDivisionError", 1)
    assert "10:00:01,200" in report.initiating.reason  # type: ignore[union-attr]
    assert "2 s" in report.initiating.reason  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("times", "hosts", "rank"),
    [
        (("10:00:01,000", "10:00:02,500"), ("gpua", "gpub"), None),
        (("10:00:01,000", "10:00:03,500"), ("gpua", "gpub"), 1),
        (("10:00:01,000", "10:00:01,300"), ("gpua", "gpua"), 1),
        (("10:00:01", "10:00:01"), ("gpua", "gpua"), None),
    ],
    ids=["within the tolerance", "beyond it", "one clock", "one second"],
)
def test_the_tolerance(times: tuple[str, str], hosts: tuple[str, str], rank: int | None) -> None:
    text = failed(9, "ValueError: bad row 7", f"2026-03-04 {times[1]}", hosts[1])
    text += failed(1, "ZeroDivisionError: division by zero", f"2026-03-04 {times[0]}", hosts[0])
    report = diagnosed(text)
    assert first(report)[1] == rank
    assert ("2 s" in report.initiating.reason) == (rank == 1 and hosts[0] != hosts[1])  # type: ignore[union-attr]


def test_files_are_no_order(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("Traceback (most recent call last):\n" + BODY + "ValueError: bad row 7\n")
    (tmp_path / "b.log").write_text("Traceback (most recent call last):\n" + BODY + "KeyError: 'age'\n")
    report = of(from_paths([str(tmp_path)]))
    assert report.verdict == "symptom-only"
    assert "which one of them was the first" in report.initiating.reason  # type: ignore[union-attr]


def test_error_files_tell_the_first_of_two_ranks(tmp_path: Path) -> None:
    for rank, last, time in ((0, "ValueError: bad row 7", 1796032809), (1, "KeyError: 'age'", 1796032801)):
        folder = tmp_path / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        stack = f"Traceback (most recent call last):\n{BODY}{last}\n"
        message = {"message": last, "extraInfo": {"py_callstack": stack, "timestamp": str(time)}}
        (folder / "error.json").write_text(json.dumps({"message": message}))
    report = of(from_paths([str(tmp_path)]))
    assert first(report) == ("KeyError", 1)
    assert report.initiating.frame is not None  # type: ignore[union-attr]


def test_of_two_errors_of_one_rank_the_upper_one_is_the_first() -> None:
    report = diagnosed(failed(1, "ValueError: bad row 7") + failed(1, "ZeroDivisionError: division by zero"))
    assert first(report) == ("ValueError", 1)


def test_what_a_collective_raises_starts_nothing_where_another_rank_failed_by_itself() -> None:
    inside = '  File "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 9, in all_reduce\n'
    text = failed(0, "RuntimeError: the ring broke in an untold way").replace(
        "[rank0]: RuntimeError", f"[rank0]: {inside}[rank0]: RuntimeError"
    )
    assert first(diagnosed(text + failed(2, "ValueError: bad row 7"))) == ("ValueError", 2)


def watchdog(rank: int, time: str, milliseconds: int, number: int = 78) -> str:
    return (
        f"[rank{rank}]:[E304 {time} ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation "
        f"timeout: WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)={milliseconds}) ran "
        f"for {milliseconds} milliseconds before timing out.\n"
    )


def test_the_start_of_a_wait_is_its_end_minus_its_duration() -> None:
    report = diagnosed(watchdog(0, "10:20:00.500000000", 600_000) + watchdog(1, "10:30:00.500000000", 1_800_000))
    assert report.initiating is not None
    assert "Its wait began at 10:00:00.5" in report.initiating.reason
    assert "1800 s" in report.initiating.reason and "before every other wait" in report.initiating.reason
    assert report.initiating.evidence[0].line == 2
    assert "10:00:00.5" in to_text(report, False)


def test_waits_that_began_together_keep_the_order_of_the_text() -> None:
    report = diagnosed(watchdog(0, "10:20:00.500000000", 600_000) + watchdog(1, "10:20:00.700000000", 600_000))
    assert report.initiating is not None
    assert report.initiating.evidence[0].line == 1
    assert "Its wait began at 10:10:00.5" in report.initiating.reason
    assert "every other" not in report.initiating.reason


def recorded(rank: int, time: str) -> str:
    return (
        f"{'=' * 60}\ntrain.py FAILED\n{'-' * 60}\nRoot Cause (first observed failure):\n[0]:\n"
        f"  time      : 2026-03-04_{time}\n  host      : node-1\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : 1 (pid: 7001)\n  error_file: /logs/{rank}/error.json\n"
        f"  traceback : Traceback (most recent call last):\n  {BODY.splitlines()[0]}\n  ValueError: bad row 7\n"
        f"{'=' * 60}\n"
    )


@pytest.mark.parametrize(("time", "verdict"), [("10:12:00", "established"), ("10:21:00", "symptom-only")])
def test_what_was_recorded_after_a_watchdog_gave_up_did_not_cause_the_wait(time: str, verdict: str) -> None:
    text = watchdog(0, "10:20:00.500000000", 600_000) + failed(1, "ValueError: bad row 7") + recorded(1, time)
    report = diagnosed(text)
    assert report.verdict == verdict
    assert (report.initiating.signature == "watchdog-timeout") == (verdict == "symptom-only")  # type: ignore[union-attr]


def test_a_machines_fact_after_the_failure_of_the_software_is_no_cause() -> None:
    text = failed(1, "ValueError: bad row 7", "2026-03-04 10:00:01,200")
    cancelled = "slurmstepd: error: *** STEP 77.0 ON gpua CANCELLED AT 2026-03-04T{} DUE TO TIME LIMIT ***\n"
    assert first(diagnosed(text + cancelled.format("10:30:00"))) == ("ValueError", 1)
    assert first(diagnosed(text + cancelled.format("10:00:00")))[0] == ""
