"""Restarts: the last attempt is diagnosed, the earlier ones are named, and two agents are no two attempts."""

import json
from pathlib import Path

import pytest

from firstfault import logs
from firstfault.diagnose import diagnose
from firstfault.diagnose.render import to_markdown, to_text
from firstfault.diagnose.report import Report, to_json
from firstfault.library import load
from firstfault.logs.source import Source, from_paths, from_text

API = "torch/distributed/elastic/multiprocessing/api.py"
CLOSED = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
    "[127.0.0.1]:31438. This is typically caused by a remote worker crashing."
)


def of(sources: list[Source]) -> Report:
    library = load()
    return diagnose(logs.read(sources, library.prefixes), library)


def diagnosed(text: str) -> Report:
    return of([from_text(text, "run.log")])


def failed(rank: int, last: str) -> str:
    lines = [
        "Traceback (most recent call last):",
        '  File "/home/ann/lab/train.py", line 31, in step',
        "    go()",
        last,
    ]
    return "".join(f"[rank{rank}]: {line}\n" for line in lines)


def exit_of(pid: int, local_rank: int = 1, agent: int = 900) -> str:
    code = f"failed (exitcode: 1) local_rank: {local_rank} (pid: {pid}) of binary: python3"
    return f"E1130 21:13:07.336000 {agent} {API}:1002] {code}\n"


def table(pid: int, rank: int = 1, host: str = "node-1") -> str:
    return (
        f"{'=' * 60}\ntrain.py FAILED\n{'-' * 60}\nRoot Cause (first observed failure):\n[0]:\n"
        f"  time      : 2026-11-30_21:13:46\n  host      : {host}\n  rank      : {rank} (local_rank: 1)\n"
        f"  exitcode  : 1 (pid: {pid})\n  error_file: <N/A>\n  traceback : none\n{'=' * 60}\n"
    )


def told(report: Report) -> tuple[str | None, list[str]]:
    return report.initiating and report.initiating.message, [each.message for each in report.earlier]


def test_an_agent_that_speaks_of_a_first_failure_twice_has_restarted_in_between() -> None:
    text = failed(1, "ValueError: bad row 7") + failed(0, CLOSED) + exit_of(11)
    text += failed(0, "KeyError: 'age'") + failed(1, CLOSED) + exit_of(12, local_rank=0)
    text += failed(1, "ValueError: bad row 9") + exit_of(13) + table(13)
    report = diagnosed(text)
    assert told(report) == ("bad row 9", ["bad row 7", "'age'"])
    assert [(each.attempt, each.rank, each.evidence[0].line) for each in report.earlier] == [(1, 1, 4), (2, 0, 13)]


def test_two_agents_of_one_attempt_are_no_two_attempts() -> None:
    text = failed(1, "ValueError: bad row 7") + exit_of(11, agent=900) + failed(3, CLOSED) + exit_of(12, agent=901)
    assert told(diagnosed(text)) == ("bad row 7", [])


def test_two_agents_that_restart_together_make_one_attempt_each_time() -> None:
    once = failed(1, "ValueError: bad row 7") + exit_of(11, agent=900) + failed(3, CLOSED) + exit_of(12, agent=901)
    again = failed(1, "ValueError: bad row 9") + exit_of(21, agent=900) + failed(3, CLOSED) + exit_of(22, agent=901)
    assert told(diagnosed(once + again)) == ("bad row 9", ["bad row 7"])


def test_lines_of_an_agent_under_info_tell_one_restart_not_two() -> None:
    agent = "I1130 21:13:07.336000 900 torch/distributed/elastic/agent/server/api.py"
    said = f"{agent}:1] [default] Worker group FAILED. 1/1 attempts left; will restart worker group\n"
    said += f"{agent}:2] [default] Stopping worker group\n"
    text = failed(1, "ValueError: bad row 7") + exit_of(11) + said + failed(1, "ValueError: bad row 9") + exit_of(12)
    assert told(diagnosed(text)) == ("bad row 9", ["bad row 7"])


def test_a_rank_with_another_pid_in_the_next_table_was_launched_anew() -> None:
    text = failed(1, "ValueError: bad row 7") + table(11) + failed(1, "KeyError: 'age'") + table(12)
    assert told(diagnosed(text)) == ("'age'", ["bad row 7"])


def test_tables_of_two_hosts_are_one_launch() -> None:
    text = failed(1, "ValueError: bad row 7") + table(11) + table(12, rank=3, host="node-2")
    assert told(diagnosed(text)) == ("bad row 7", [])


def test_a_launch_anew_that_comes_to_its_end_has_healed_the_failure() -> None:
    launch = f"W1130 21:14:00.000000 990 {API}:774] Setting OMP_NUM_THREADS environment variable for each process\n"
    healthy = "step 1 loss 0.9\nstep 2 loss 0.8\ntraining finished\n"
    report = diagnosed(failed(1, "ValueError: bad row 7") + table(11) + launch + healthy)
    assert report.verdict == "no-failure"
    assert told(report) == (None, ["bad row 7"])


def test_an_attempt_that_only_echoes_is_diagnosed_with_the_one_before() -> None:
    text = failed(0, "KeyError: 'age'") + exit_of(10, local_rank=0)
    text += failed(1, "ValueError: bad row 7") + exit_of(11) + failed(1, CLOSED) + exit_of(12)
    assert told(diagnosed(text)) == ("bad row 7", ["'age'"])


def test_folders_of_attempts(tmp_path: Path) -> None:
    for attempt, last in enumerate(("ValueError: bad row 7", "KeyError: 'age'")):
        folder = tmp_path / f"attempt_{attempt}" / "1"
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(failed(1, last))
    report = of(from_paths([str(tmp_path)]))
    assert told(report) == ("'age'", ["bad row 7"])
    assert "attempt_0" in report.earlier[0].evidence[0].file


def test_each_file_has_its_own_restarts(tmp_path: Path) -> None:
    for node in (0, 1):
        first = failed(1, "ValueError: bad row 7") if node else failed(0, CLOSED)
        last = failed(1, "KeyError: 'age'") if node else failed(0, CLOSED)
        (tmp_path / f"node-{node}.log").write_text(first + exit_of(11 + node) + last + exit_of(21 + node))
    assert told(of(from_paths([str(tmp_path)]))) == ("'age'", ["bad row 7"])


@pytest.mark.parametrize("rows", [3, 9])
def test_the_report_names_the_last_of_many_attempts(rows: int) -> None:
    report = diagnosed("".join(failed(1, f"ValueError: bad row {row}") + exit_of(row + 1) for row in range(rows)))
    assert told(report)[0] == f"bad row {rows - 1}"
    assert [each.attempt for each in report.earlier] == list(range(max(rows - 5, 1), rows))
    shown = to_text(report, False)
    assert f"Attempt {rows - 1}: rank 1: ValueError: bad row {rows - 2} (run.log:" in shown
    assert "## Earlier attempts" in to_markdown(report)
    assert json.loads(json.dumps(to_json(report)))["earlier"][0]["signature"] == "user-exception"
