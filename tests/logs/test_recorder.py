"""Flight Recorder dumps: read without trusting them, and the ranks that are behind, group by group."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from firstfault import logs
from firstfault.diagnose import diagnose
from firstfault.diagnose.recorded import lags_of, report_of_dumps, silent_ranks
from firstfault.diagnose.report import Read, Report
from firstfault.library import load
from firstfault.logs.recorder import Dump, looks_like_dump, read_dump
from firstfault.logs.source import from_paths

WORLD = [0, 1, 2, 3]
PAIRS = {"1": [0, 1], "2": [2, 3]}


def entry(pg_id: int, name: str, sequence: int, state: str = "completed", p2p: bool = False) -> dict[str, Any]:
    return {
        "pg_id": pg_id,
        "process_group": (name, f"group {name}"),
        "collective_seq_id": sequence,
        "profiling_name": "nccl:send 0->1" if p2p else "nccl:all_reduce",
        "state": state,
        "is_p2p": p2p,
    }


def raw_dump(rank: int, world: tuple[int, int], pair: tuple[int, int], **more: Any) -> dict[str, Any]:
    """A dump of 4 ranks in a world group and two pairs; counts are (enqueued, completed)."""
    name = "1" if rank in PAIRS["1"] else "2"
    return {
        "version": "2.9",
        "pg_config": {
            "0": {"name": "0", "desc": "default_pg", "ranks": str(WORLD)},
            name: {"name": name, "desc": "TENSOR", "ranks": str(PAIRS[name])},
        },
        "pg_status": {
            "0": {"last_enqueued_collective": world[0], "last_completed_collective": world[1]},
            "1": {"last_enqueued_collective": pair[0], "last_completed_collective": pair[1]},
        },
        "entries": [entry(0, "0", world[0], "scheduled"), entry(1, name, pair[0], "scheduled")],
        **more,
    }


def dumps(**by_rank: dict[str, Any]) -> list[Dump]:
    read = [read_dump(f"fr_{rank[1:]}", pickle.dumps(raw)) for rank, raw in by_rank.items()]
    assert all(read)
    return [each for each in read if each is not None]


def test_a_rank_that_issued_less_is_behind_on_the_host() -> None:
    found = lags_of(
        dumps(
            r0=raw_dump(0, (9, 8), (50, 49)), r1=raw_dump(1, (9, 8), (50, 49)),
            r2=raw_dump(2, (9, 8), (50, 41)), r3=raw_dump(3, (8, 8), (41, 41)),
        )
    )  # fmt: skip
    assert {(lag.rank, lag.side) for lag in found} == {(3, "host")}
    assert found[0].group.description == "TENSOR"


def test_a_rank_that_issued_all_and_completed_less_is_behind_on_the_device() -> None:
    found = lags_of(
        dumps(
            r0=raw_dump(0, (9, 8), (50, 49)), r1=raw_dump(1, (9, 8), (50, 49)),
            r2=raw_dump(2, (9, 8), (50, 49)), r3=raw_dump(3, (9, 7), (50, 40)),
        )
    )  # fmt: skip
    assert {(lag.rank, lag.side) for lag in found} == {(3, "device")}


def test_point_to_point_groups_are_left_out() -> None:
    first = raw_dump(0, (9, 9), (50, 50))
    second = raw_dump(1, (9, 9), (20, 20))
    for raw in (first, second):
        raw["entries"].append(entry(1, "1", 20, p2p=True))
    assert lags_of(dumps(r0=first, r1=second)) == []


def test_garbage_counters_are_unknown() -> None:
    raw = raw_dump(1, (9, 8), (50, 49))
    raw["pg_status"]["0"]["last_completed_collective"] = 3452013982
    assert lags_of(dumps(r0=raw_dump(0, (9, 8), (50, 49)), r1=raw)) == []


def test_a_rank_without_a_dump_is_a_suspect() -> None:
    present = dumps(r0=raw_dump(0, (9, 8), (50, 49)), r1=raw_dump(1, (9, 8), (50, 49)), r2=raw_dump(2, (9, 8), (5, 4)))
    assert silent_ranks(present) == [3]
    report = report_of_dumps(present, load(), Read(3, 0, 0, (0, 1, 2), 0.0))
    assert (report.verdict, [each.rank for each in report.suspects]) == ("symptom-only", [3])
    assert report.missing


def test_two_ranks_behind_are_suspects_and_no_rank_is_the_answer() -> None:
    report = report_of_dumps(
        dumps(
            r0=raw_dump(0, (9, 8), (50, 49)), r1=raw_dump(1, (8, 8), (49, 49)),
            r2=raw_dump(2, (9, 8), (50, 49)), r3=raw_dump(3, (8, 8), (49, 49)),
        ),
        load(),
        Read(4, 0, 0, (0, 1, 2, 3), 0.0),
    )  # fmt: skip
    assert report.initiating is not None and report.initiating.rank is None
    assert [each.rank for each in report.suspects] == [1, 3]


def test_nobody_behind_is_said() -> None:
    same = dumps(**{f"r{rank}": raw_dump(rank, (9, 8), (50, 49)) for rank in WORLD})
    report = report_of_dumps(same, load(), Read(4, 0, 0, (0, 1, 2, 3), 0.0))
    assert report.suspects == () and report.missing


def test_a_folder_of_dumps_is_diagnosed_and_its_log_gets_their_suspects(tmp_path: Path) -> None:
    for rank in WORLD:
        pair = (41, 41) if rank == 3 else (50, 49)
        (tmp_path / f"fr_{rank}").write_bytes(pickle.dumps(raw_dump(rank, (9, 8), pair)))
    report = diagnosed(tmp_path)
    assert report.initiating is not None
    assert (report.verdict, report.initiating.rank) == ("symptom-only", 3)
    (tmp_path / "job.log").write_text(
        "[rank0]:[E1218 20:27:21.433063423 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600088 "
        "milliseconds before timing out.\n"
    )
    report = diagnosed(tmp_path)
    assert [each.rank for each in report.suspects] == [3]
    assert report.initiating is not None and report.initiating.evidence


def diagnosed(folder: Path) -> Report:
    library = load()
    return diagnose(logs.read(from_paths([str(folder)]), library.prefixes), library)


def test_json_dumps_read_the_same() -> None:
    raw = raw_dump(2, (9, 8), (50, 49))
    assert read_dump("fr_trace_2.json", json.dumps(raw).encode()) == read_dump("fr_2", pickle.dumps(raw))


def test_an_unpickler_that_refuses_every_class(tmp_path) -> None:  # type: ignore[no-untyped-def]
    marker = tmp_path / "ran"
    evil = b"\x80\x04cos\nsystem\n(V" + f"touch {marker}".encode() + b"\ntR."
    assert looks_like_dump(evil)
    assert read_dump("fr_0", evil) is None
    assert not marker.exists()


@pytest.mark.parametrize("data", [b"", b"\x80\x04", b"\x80\x04]", b"{", b"[]", b"\x80\x04N.", pickle.dumps({"a": 1})])
def test_what_is_no_dump_is_none(data: bytes) -> None:
    assert read_dump("fr_0", data) is None


def test_a_file_whose_name_tells_no_rank_is_none() -> None:
    assert read_dump("dump", pickle.dumps(raw_dump(0, (9, 8), (50, 49)))) is None
