"""Ranks that lines tell of processes whose other lines carry none: RANK=, NCCL's communicators, pids of log lines."""

from pathlib import Path

import pytest

from firstfault import logs
from firstfault.diagnose import diagnose
from firstfault.diagnose.report import Report
from firstfault.library import load
from firstfault.logs.source import Source, from_paths, from_text

FAILED = [
    "Traceback (most recent call last):",
    '  File "/home/ann/lab/train.py", line 3, in step',
    "ValueError: bad row",
]


def of(sources: list[Source]) -> Report:
    library = load()
    return diagnose(logs.read(sources, library.prefixes), library)


def rank_of(text: str) -> tuple[object, str | None]:
    first = of([from_text(text, "run.log")]).initiating
    assert first is not None
    return first.rank, first.rank_basis


def behind(prefix: str, *lines: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in lines)


@pytest.mark.parametrize("said", ["RANK=5 WORLD_SIZE=8", "env: LOCAL_RANK=1, RANK=5", "'RANK': '5'", "RANK: 5"])
def test_a_process_that_prints_its_rank(said: str) -> None:
    said = said.replace("'RANK': ", "RANK: ")
    text = behind("[default1]:", said, *FAILED) + behind("[default0]:", "RANK=4")
    assert rank_of(text) == (5, "inferred")


def test_a_stream_that_prints_two_ranks_is_two_processes() -> None:
    text = behind("[default1]:", "RANK=5", "RANK=1", *FAILED)
    assert rank_of(text) == (None, None)


def test_other_ranks_of_a_process_are_not_its_rank() -> None:
    text = behind("(Worker pid=77) ", "LOCAL_RANK=1 NODE_RANK=2 GROUP_RANK=3", *FAILED)
    assert rank_of(text) == (None, None)


def test_what_the_console_as_a_whole_prints_is_no_ones_rank() -> None:
    assert rank_of("RANK=0\n" + behind("", *FAILED)) == (None, None)


def test_files_that_each_tell_another_rank(tmp_path: Path) -> None:
    for name, rank in (("a", 6), ("b", 2)):
        (tmp_path / f"{name}.log").write_text(f"RANK={rank}\nstarted\n" + ("\n".join(FAILED) if rank == 2 else ""))
    first = of(from_paths([str(tmp_path)])).initiating
    assert first is not None
    assert (first.rank, first.rank_basis) == (2, "inferred")


def communicator(pid: int, rank: int, size: int, host: str = "gpu041") -> str:
    return f"{host}:{pid}:{pid + 9} [0] NCCL INFO comm 0x55 rank {rank} nranks {size} cudaDev 0 busId 1b000\n"


def test_the_largest_communicator_tells_the_rank_of_a_pid() -> None:
    text = communicator(700, 6, 8) + communicator(700, 0, 2) + communicator(701, 7, 8) + communicator(701, 1, 2)
    killed = "kernel: Out of memory: Killed process 701 (python3) total-vm:81234567kB, anon-rss:61234567kB\n"
    assert rank_of(text + f"Nov 30 12:00:01 gpu041 {killed}") == (7, "inferred")
    assert rank_of(text + f"Nov 30 12:00:01 gpu042 {killed}") == (None, None)


def test_a_communicator_of_fewer_ranks_than_processes_is_not_the_worlds() -> None:
    text = "".join(communicator(700 + number, number % 2, 2) for number in range(4))
    killed = "kernel: Out of memory: Killed process 701 (python3) total-vm:81234567kB, anon-rss:61234567kB\n"
    assert rank_of(text + f"Nov 30 12:00:01 gpu041 {killed}") == (None, None)


def test_a_log_line_with_rank_and_pid_tells_the_rank_of_the_pid() -> None:
    text = "[rank3]:W0922 18:51:16.217000 119 torch/_dynamo/utils.py:774] a warning\n"
    assert rank_of(text + behind("(Worker pid=119) ", *FAILED)) == (3, "inferred")
