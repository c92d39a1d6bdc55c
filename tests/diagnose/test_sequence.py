"""Counters of watchdogs: who never issued, or never completed, what the others waited for; group by group."""

import pytest

from firstfault import logs
from firstfault.diagnose import diagnose
from firstfault.diagnose.report import Report
from firstfault.diagnose.sequence import laggards
from firstfault.library import load
from firstfault.logs.log import Log
from firstfault.logs.source import from_text


def log_of(text: str) -> Log:
    return logs.read([from_text(text, "run.log")], load().prefixes)


def lags(text: str) -> dict[int, tuple[str, int, int]]:
    return {rank: (lag.side, lag.own, lag.peers) for rank, lag in laggards(log_of(text)).items()}


def status(rank: int, work: int, enqueued: int, completed: int, group: str = "PG ID 0 PG GUID 0(default_pg)") -> str:
    return (
        f"[rank{rank}]:[E304 10:00:01.5 ProcessGroupNCCL.cpp:629] [{group} Rank {rank}]  failure detected by watchdog "
        f"at work sequence id: {work} PG status: last enqueued work: {enqueued}, last completed work: {completed}\n"
    )


def dumped(rank: int, enqueued: int, completed: int) -> str:
    return (
        f"[rank{rank}]:[E304 10:00:01.6 ProcessGroupNCCL.cpp:629] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Received "
        f"a dump signal due to a collective timeout from  rank 0 and we will try our best to dump the debug info. Last "
        f"enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}. \n"
    )


def caught(rank: int, number: int, operation: str = "ALLREDUCE", head: str = "") -> str:
    return (
        f"[rank{rank}]:[E304 10:00:01.4 ProcessGroupNCCL.cpp:629] {head}[Rank {rank}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum={number}, OpType={operation}, NumelIn=4, NumelOut=4, Timeout(ms)=600000) "
        "ran for 600088 milliseconds before timing out.\n"
    )


def diagnosed(text: str) -> Report:
    library = load()
    return diagnose(log_of(text), library)


HEALTHY = status(0, 78, 80, 77) + status(1, 78, 79, 77) + status(2, 78, 78, 77)


def test_enqueued_below_what_others_wait_for_is_the_host_side() -> None:
    assert lags(HEALTHY + dumped(3, 77, 77)) == {3: ("host", 77, 78)}


def test_enqueued_but_completed_less_is_the_device_side() -> None:
    assert lags(HEALTHY + status(3, 71, 80, 70)) == {3: ("device", 70, 77)}
    assert lags(HEALTHY + dumped(3, 80, 70)) == {3: ("device", 70, 77)}


@pytest.mark.parametrize("last", ["", status(3, 78, 95, 77), dumped(3, 78, 77)], ids=["none", "ahead", "level"])
def test_who_is_level_or_ahead_is_not_behind(last: str) -> None:
    assert lags(HEALTHY + last) == {}


def test_a_rank_that_never_enqueued_anything() -> None:
    text = HEALTHY + dumped(3, -1, -1)
    assert lags(text) == {3: ("host", -1, 78)}
    report = diagnosed(caught(0, 78) + text)
    assert report.initiating is not None
    assert "had enqueued no collective" in report.initiating.reason


def test_counters_that_cannot_be_are_unknown() -> None:
    assert lags(HEALTHY + status(3, 78, 3452013982, 3452013982)) == {}
    assert lags(HEALTHY + dumped(3, 80, 3452013982)) == {}


def test_before_there_were_counters_the_number_of_the_work_tells() -> None:
    text = "".join(caught(rank, 118) for rank in (0, 1, 2)) + caught(3, 102)
    assert lags(text) == {3: ("device", 101, 117)}


def test_sends_and_receives_count_differently_on_every_rank() -> None:
    pipe = "PG ID 3 PG GUID 9(pp)"
    text = "".join(status(rank, 78, 80, 77, pipe) for rank in (0, 1, 2)) + status(3, 12, 12, 11, pipe)
    assert lags(text) == {3: ("host", 12, 78)}
    assert lags(caught(0, 78, "SEND", f"[{pipe} Rank 0] ") + text) == {}
    assert lags("".join(caught(rank, 118, "RECV") for rank in (0, 1, 2)) + caught(3, 102)) == {}


def test_groups_are_compared_apart_and_the_inner_one_first() -> None:
    tensor = "PG ID 1 PG GUID 4(tp)"
    inner = "".join(status(rank, 40, 41, 39, tensor) for rank in (4, 5, 6)) + status(7, 33, 41, 32, tensor)
    outer = HEALTHY + dumped(3, 77, 77)
    assert lags(outer + inner) == {7: ("device", 32, 39)}
    report = diagnosed(caught(0, 78) + outer + inner)
    assert report.initiating is not None
    assert (report.initiating.rank, report.initiating.rank_basis) == (7, "inferred")
    assert "32 collectives of tp" in report.initiating.reason
    assert report.verdict == "symptom-only"


def test_half_against_half_convicts_nobody() -> None:
    assert lags(status(0, 78, 80, 77) + status(1, 78, 80, 77) + dumped(2, 77, 77) + dumped(3, 77, 77)) == {}
