"""What stands before a line, alone and several of them one behind the other: the text is left, the writer is known."""

import pytest

from firstfault.library import load
from firstfault.logs.lines import Cleaner

CLEANER = Cleaner(load().prefixes)
ERROR = "RuntimeError: boom"
CPP = "ProcessGroupNCCL.cpp:1785"

ROWS = {
    "excepthook": (f"[rank3]: {ERROR}", {"rank": 3}),
    "torch C++": (f"[rank3]:[E227 16:30:43.526290891 {CPP}] {ERROR}", {"rank": 3, "source": CPP}),
    "old torch C++": (f"[E {CPP}] {ERROR}", {"source": CPP}),
    "torch Python": (f"W0922 18:51:16.217000 119 torch/distributed/run.py:774] {ERROR}", {"pid": 119, "rank": None}),
    "tee": (f"[default1]:[rank5]: {ERROR}", {"rank": 5, "local_rank": 1}),
    "tee with a role": (f"[host-1:0]:{ERROR}", {"host": "host-1", "local_rank": 0}),
    "srun label": (f"03: {ERROR}", {"label": "03", "rank": None}),
    "pdsh": (f"worker-1: [rank9]: {ERROR}", {"host": "worker-1", "rank": 9}),
    "mpirun": (f"[1,3]<stderr>:{ERROR}", {"rank": 3}),
    "horovod": (f"[2]<stderr>:{ERROR}", {"rank": 2}),
    "ray": (f"(TrainWorker pid=12, ip=10.0.0.2) {ERROR}", {"pid": 12, "host": "10.0.0.2"}),
    "stern": (f"job-worker-0 pytorch {ERROR}", {"host": "job-worker-0"}),
    "kubectl": (f"[pod/job-0/pytorch] {ERROR}", {"host": "job-0"}),
    "compose": (f"trainer-1  | {ERROR}", {"source": "trainer-1"}),
    "node's container log": (f"2026-11-30T12:00:01.5Z stderr F {ERROR}", {"time": "2026-11-30T12:00:01.5Z"}),
    "syslog": (f"Nov 30 12:00:01 node7 train[12]: {ERROR}", {"host": "node7", "pid": 12}),
    "journald": (f"2026-11-30T12:00:01+0100 node7 train[12]: {ERROR}", {"host": "node7", "pid": 12}),
    "dmesg": (f"[Mon Nov 30 12:00:01 2026] {ERROR}", {"time": "Mon Nov 30 12:00:01 2026"}),
    "slurm's daemon": (f"[2026-11-30T12:00:01.123] [77.0] error: {ERROR}", {"label": "77.0"}),
    "nccl": (f"gpu041:22011:22055 [0] NCCL WARN {ERROR}", {"host": "gpu041", "pid": 22011, "device": 0, "rank": None}),
    "glog": (f"E0512 12:34:56.789012 12345 file.cpp:123] {ERROR}", {"time": "0512 12:34:56.789012", "pid": 12345}),
    "accelerate test": (f"stderr: {ERROR}", {}),
    "loguru": (f"2026-06-17 15:57:01.698 | ERROR    | lab.pool:read:164 - {ERROR}", {"source": "lab.pool:read:164"}),
    "lightning": (f"[rank: 1] {ERROR}", {"rank": 1}),
    "transformers": (f"[ERROR|hub.py:12] 2026-03-01 12:00:00,123 >> {ERROR}", {"source": "hub.py:12"}),
    "megatron": (f" [2026-06-01 12:00:00] {ERROR}", {"time": "2026-06-01 12:00:00"}),
    "nemo": (f"[NeMo E 2026-04-11 14:46:18 exp:405] rank_3:{ERROR}", {"rank": 3}),
    "hccl": (f"[ERROR] 2026-07-03-19:45:13 (PID:6, Device:1, RankID:43) {ERROR}", {"rank": 43, "device": 1}),
    "a listing": (f"     7\t{ERROR}", {}),
    "stern, ray, tee, torch": (
        f"job-worker-0 trainer [rank3]:[E227 16:30:43.5 {CPP}] {ERROR}", {"host": "job-worker-0", "rank": 3}
    ),
    "time, tee, excepthook": (f"2026-11-30 12:00:01 [default1]:[rank5]: {ERROR}", {"rank": 5, "local_rank": 1}),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_the_text_is_left_and_the_writer_is_known(row: str) -> None:
    line, expected = ROWS[row]
    tags, text = CLEANER.peel(line)
    assert text.removeprefix("NCCL WARN ").removeprefix("error: ") == ERROR
    assert {name: getattr(tags, name) for name in expected} == expected
