"""torchrun's table and its agent's lines, as torch 2.13 prints them."""

from reading import read

TABLE = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-30_16:11:55
  host      : gpu-01
  rank      : 5 (local_rank: 1)
  exitcode  : -15 (pid: 95225)  (SIGTERM)
  error_file: /home/ann/tmp/torchelastic/attempt_0/1/error.json
  traceback : Traceback (most recent call last):
    File "/home/ann/lab/train.py", line 49, in main
      train(model)
  RuntimeError: Connection closed by peer [127.0.0.1]:31438

------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_16:11:54
  host      : gpu-01
  rank      : 4 (local_rank: 0)
  exitcode  : -9 (pid: 95224)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 95224
============================================================
"""


def test_rows() -> None:
    log = read(TABLE)
    first, root = log.rows
    assert (first.rank, first.local_rank, first.exitcode, first.pid, first.root) == (5, 1, -15, 95225, False)
    assert first.error is not None and first.error.type == "RuntimeError"
    assert (root.rank, root.exitcode, root.root, root.host) == (4, -9, True, "gpu-01")
    assert root.signal_text == "Signal 9 (SIGKILL) received by PID 95224"


def test_a_traceback_in_the_table_is_not_an_exception_of_the_log() -> None:
    assert [one.blocks[-1].type.rsplit(".", 1)[-1] for one in read(TABLE).raised] == ["ChildFailedError"]


def test_tables_below_a_prefix_and_of_two_agents() -> None:
    prefixed = "".join(f"node-7: {line}\n" for line in TABLE.splitlines()).replace("node-7: ", "2026-11-30 16:12:00 ")
    log = read(prefixed + TABLE.replace("gpu-01", "gpu-02"))
    assert [row.table for row in log.rows] == [0, 0, 0, 0] or len({row.host for row in log.rows}) == 2
    assert len(log.rows) == 4


def test_agent_lines_name_first_exits_and_ended_pids() -> None:
    log = read(
        "W1130 16:11:56.897000 95219 torch/distributed/elastic/multiprocessing/api.py:1028] "
        "Sending process 95225 closing signal SIGTERM\n"
        "E1130 16:11:57.032000 95219 torch/distributed/elastic/multiprocessing/api.py:1002] "
        "failed (exitcode: -9) local_rank: 0 (pid: 95224) of binary: /home/ann/env/bin/python3\n"
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 2 (pid: 7) of binary: x\n"
    )
    assert [(each.code, each.local_rank, each.pid) for each in log.exits] == [(-9, 0, 95224), (1, 2, 7)]
    assert log.closed_pids == {95225}


def test_agents_of_other_versions_word_an_exit_otherwise() -> None:
    log = read(
        "Child process 71952 (local_rank 0) FAILED (exitcode 1)\n"
        "E0304 10:00:00.000000 9 torch/x.py:1] failed (exitcode: -9) for binary at /bin/python with local_rank: 3\n"
    )
    assert [(each.code, each.local_rank, each.pid) for each in log.exits] == [(1, 0, 71952), (-9, 3, 0)]


def test_a_table_whose_beginning_is_cut_off() -> None:
    log = read(TABLE[TABLE.index("  time") :])
    assert [row.rank for row in log.rows] == [5, 4]
