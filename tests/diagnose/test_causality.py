"""Which failure came first: one small text for each kind of evidence, and for each thing that must not be concluded."""

import pytest

from firstfault import logs
from firstfault.diagnose import diagnose
from firstfault.diagnose.render import to_text
from firstfault.diagnose.report import Report
from firstfault.library import load
from firstfault.logs.source import from_text

CLOSED = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
    "[127.0.0.1]:31438. This is typically caused by a remote worker crashing."
)
WAITED = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for "
    "recv operation to complete"
)
HEAD = 'Traceback (most recent call last):\n  File "/home/ann/lab/train.py", line 3, in main\n'
AGENT = "torch/distributed/elastic/multiprocessing/api.py"


def diagnosed(text: str) -> Report:
    library = load()
    return diagnose(logs.read([from_text(text, "run.log")], library.prefixes), library)


def traceback(rank: int, last: str, line: int = 31) -> str:
    return "".join(
        f"[rank{rank}]: {text}\n"
        for text in (
            "Traceback (most recent call last):",
            f'  File "/home/ann/lab/train.py", line {line}, in step',
            "    loss.backward()",
            last,
        )
    )


def table(*rows: tuple[int, int, str], root: int, hosts: str = "node-1") -> str:
    """Rows of (rank, exit code, time); ``root`` is the rank that the table calls the root cause."""
    parts = ["=" * 60, "train.py FAILED", "-" * 60, "Failures:"]
    ordered = sorted(rows, key=lambda row: row[0] == root)
    for number, (rank, code, time) in enumerate(ordered):
        if rank == root:
            parts += ["-" * 60, "Root Cause (first observed failure):"]
        parts += [
            f"[{number}]:",
            f"  time      : 2026-03-04_{time}",
            f"  host      : {hosts}",
            f"  rank      : {rank} (local_rank: {rank})",
            f"  exitcode  : {code} (pid: {7000 + rank})",
            "  error_file: <N/A>",
            "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
        ]
    return "\n".join([*parts, "=" * 60]) + "\n"


def first(report: Report) -> tuple[str, object]:
    assert report.initiating is not None
    return report.initiating.signature, report.initiating.rank


def test_what_starts_a_chain_beats_what_was_printed_before_it() -> None:
    report = diagnosed(traceback(0, CLOSED) + traceback(2, "ValueError: bad row 7"))
    assert first(report) == ("user-exception", 2)
    assert [(each.signature, each.ranks) for each in report.collateral] == [("gloo-closed", (0,))]


def test_the_same_failure_on_every_rank_is_a_common_cause() -> None:
    text = "".join(traceback(rank, "ValueError: unknown optimizer adamx") for rank in range(3))
    assert first(diagnosed(text)) == ("user-exception", "all")


def test_the_same_failure_on_some_ranks_while_others_only_lost_them_is_not_all() -> None:
    text = traceback(1, "ValueError: bad row") + traceback(2, "ValueError: bad row") + traceback(0, CLOSED)
    report = diagnosed(text)
    assert (report.verdict, first(report)) == ("established", ("user-exception", None))
    assert [each.rank for each in report.suspects] == [1, 2]


def test_torchruns_table_is_contradicted_openly() -> None:
    text = traceback(2, "ValueError: bad row 7") + traceback(0, CLOSED)
    text += table((0, 1, "10:00:01"), (2, 1, "10:00:02"), root=0)
    report = diagnosed(text)
    assert first(report) == ("user-exception", 2)
    assert report.contradictions and "rank 0" in report.contradictions[0]


def test_all_but_one_waited_so_the_silent_one_is_suspected_not_convicted() -> None:
    text = "".join(traceback(rank, WAITED) for rank in (0, 2, 3))
    text += table((0, 1, "10:00:01"), (1, -15, "10:00:03"), (2, 1, "10:00:02"), (3, 1, "10:00:02"), root=0)
    report = diagnosed(text)
    assert first(report) == ("gloo-timeout", 1)
    assert report.verdict == "symptom-only"
    assert report.missing
    assert [each.rank for each in report.suspects] == [1]
    assert "failed first" not in to_text(report, False).splitlines()[0]


def test_two_silent_ranks_give_no_rank() -> None:
    text = traceback(0, WAITED) + traceback(1, WAITED)
    text += table((0, 1, "10:00:01"), (1, 1, "10:00:03"), (2, -15, "10:00:02"), (3, -15, "10:00:02"), root=0)
    report = diagnosed(text)
    assert first(report)[1] is None
    assert sorted(each.rank for each in report.suspects) == [2, 3]


def test_a_kill_that_the_agent_did_not_send() -> None:
    text = traceback(0, CLOSED) + table((0, 1, "10:00:02"), (1, -9, "10:00:01"), root=1)
    report = diagnosed(text)
    assert first(report) == ("sigkill", 1)
    assert report.verdict == "symptom-only"


def test_a_kill_that_the_agent_sent_is_a_consequence() -> None:
    text = (
        traceback(0, "ValueError: bad row 7")
        + f"W0304 10:00:31.000000 9 {AGENT}:1028] Unable to shutdown process 7001 via Signals.SIGTERM, forcefully "
        + "exiting via Signals.SIGKILL\n"
        + table((0, 1, "10:00:01"), (1, -9, "10:00:31"), root=0)
    )
    assert first(diagnosed(text)) == ("user-exception", 0)


def test_an_exit_code_of_the_users_own() -> None:
    text = traceback(0, CLOSED) + traceback(2, CLOSED)
    text += table((0, 1, "10:00:02"), (1, 3, "10:00:01"), (2, -15, "10:00:02"), root=0)
    report = diagnosed(text)
    assert first(report) == ("early-exit", 1)


def test_only_the_table_is_left() -> None:
    report = diagnosed(table((0, -15, "10:00:02"), (3, 1, "10:00:01"), root=3))
    assert first(report) == ("child-failed", 3)
    assert report.verdict == "symptom-only"
    assert report.missing


def test_a_handled_error_followed_by_progress_is_no_failure() -> None:
    text = (
        "epoch 0 step 1 loss 0.9\n"
        "Traceback (most recent call last):\n"
        '  File "/home/ann/lab/metrics.py", line 9, in send\n'
        "    raise OSError('no route')\n"
        "OSError: no route\n"
        "epoch 0 step 2 loss 0.8\nepoch 0 step 3 loss 0.7\nepoch 0 step 4 loss 0.6\n"
    )
    assert diagnosed(text).verdict == "no-failure"


def test_a_bar_that_is_drawn_once_more_is_no_progress() -> None:
    text = (
        " 33%|###       | 49/147 [21:19<42:38, 26.11s/it]\n"
        "Traceback (most recent call last):\n"
        '  File "/home/ann/lab/tune.py", line 147, in <module>\n'
        "    main()\n"
        "ValueError: bad row 7\n"
        " 33%|###       | 49/147 [21:24<42:49, 26.22s/it]\n"
    )
    assert diagnosed(text).verdict == "established"


def test_progress_printed_late_does_not_undo_an_exit_code() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/home/ann/lab/tune.py", line 147, in <module>\n'
        "    main()\n"
        "ValueError: bad row 7\n"
        "srun: error: node-1: task 3: Exited with exit code 1\n"
        "epoch 0 step 2 loss 0.8\nepoch 0 step 3 loss 0.7\n"
    )
    assert diagnosed(text).verdict == "established"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "epoch 0 step 1 loss 0.9 error_rate 0.1\nnumber of nan iterations: 0\nno errors found\n",
        "# ValueError: this is how it fails without the patch\n",
        "WARNING: retrying after failure, attempt 1\nepoch 1 step 9 loss 0.2\ntraining finished\n",
    ],
    ids=["empty", "blank", "healthy words", "comment", "retried"],
)
def test_healthy_text_has_no_failure(text: str) -> None:
    report = diagnosed(text)
    assert (report.verdict, report.initiating) == ("no-failure", None)


def test_a_local_rank_counts_as_a_rank_on_one_node_only() -> None:
    one = "[default1]:ValueError: bad row 7\n"
    assert first(diagnosed(one)) == ("user-exception", 1)
    other_node = "[default1]:[rank5]: warming up\n[default1]:[rank1]: warming up\n"
    assert first(diagnosed(other_node + one))[1] is None


def test_a_traceback_below_a_log_record_of_a_rank_belongs_to_it() -> None:
    text = (
        "2026-03-04 10:00:01 [rank 2] ERROR training failed\n"
        "Traceback (most recent call last):\n"
        '  File "/home/ann/lab/train.py", line 3, in main\n'
        "    raise TypeError('no')\n"
        "TypeError: no\n"
    )
    assert first(diagnosed(text)) == ("user-exception", 2)


def test_frames_without_their_last_line_establish_nothing() -> None:
    report = diagnosed(
        'Traceback (most recent call last):\n  File "/home/ann/lab/train.py", line 3, in main\n    go()\n'
    )
    assert report.verdict == "symptom-only"
    assert report.missing


def test_ignored_exceptions_are_not_the_failure() -> None:
    text = (
        f"{HEAD}ValueError: bad row 7\n"
        f"Exception ignored in: <function Pool.__del__ at 0x7f>\n{HEAD}AttributeError: _pool\n"
    )
    report = diagnosed(text)
    assert report.initiating is not None
    assert report.initiating.exception == "ValueError"


def test_ranks_that_ended_within_the_same_second_have_no_first() -> None:
    report = diagnosed(table((0, 1, "10:00:01"), (1, 1, "10:00:01"), (2, 1, "10:00:01"), root=0))
    assert first(report) == ("child-failed", None)
    assert "same second" in report.initiating.reason  # type: ignore[union-attr]


def test_the_agents_line_names_the_process_where_the_table_is_cut_off() -> None:
    text = (
        f"W0304 10:00:01.000000 9 {AGENT}:1028] Sending process 7000 closing signal SIGTERM\n"
        f"E0304 10:00:01.100000 9 {AGENT}:1002] failed (exitcode: 1) local_rank: 2 (pid: 7002) of binary: python3\n"
    )
    report = diagnosed(text)
    assert first(report) == ("child-failed", 2)
    assert report.initiating.rank_basis == "inferred"  # type: ignore[union-attr]
    assert report.verdict == "symptom-only"


def test_a_spawned_process_whose_traceback_is_cut_is_not_its_wrapper() -> None:
    text = (
        HEAD + "torch.multiprocessing.spawn.ProcessRaisedException: \n\n"
        "-- Process 1 terminated with the following error:\n"
        'Traceback (most recent call last):\n  File "/home/ann/lab/train.py", line 9, in work\n'
    )
    report = diagnosed(text)
    assert first(report) == ("unknown-failure", 1)
    assert report.verdict == "symptom-only"


def test_what_a_launcher_raises_about_the_launch_is_the_failure() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/env/lib/python3.11/site-packages/deepspeed/launcher/runner.py", '
        "line 441, in main\n    raise RuntimeError(text)\n"
        "RuntimeError: host=node-7 of hosts.txt was not reached\n"
    )
    assert first(diagnosed(text))[0] == "user-exception"


def test_a_message_that_the_terminal_wrapped_is_still_known() -> None:
    text = (
        HEAD + "RuntimeError: The server socket has failed to listen on any local network\n"
        "address. The server socket has failed to bind to [::]:29600 (errno: 98 - Address\nalready in use).\n"
    )
    assert first(diagnosed(text))[0] == "port-in-use"


@pytest.mark.parametrize(
    "line",
    [
        "ERROR 03-02 10:20:38 [core.py:448] the pool refused its last part",
        "job-worker-0 exited with status 3",
        "Exception raised from open_part at /build/pool.cpp:12 (most recent call first):",
        "fatal: the pool could not be read",
    ],
)
def test_an_error_that_nobody_got_over_is_unknown_and_no_all_clear(line: str) -> None:
    report = diagnosed(f"step 1 loss 0.9\nstep 2 loss 0.8\n{line}\n")
    assert first(report) == ("unknown-failure", None)
    assert report.verdict == "symptom-only" and report.missing


@pytest.mark.parametrize(
    "after", ["step 3 loss 0.7\nstep 4 loss 0.6\n", "training finished after 4 steps\n", "Training completed\n"]
)
def test_an_error_that_the_run_got_over_is_no_failure(after: str) -> None:
    text = f"step 1 loss 0.9\nstep 2 loss 0.8\nERROR tracker: upload failed, will retry\n{after}"
    assert diagnosed(text).verdict == "no-failure"


def test_a_job_that_did_not_complete_has_not_finished() -> None:
    text = "slurmstepd: error: Detected 2 oom_kill events in StepId=77.0. Some of the step tasks were OOM Killed.\n"
    report = diagnosed(text + "At least one job did not complete successfully.\n")
    assert first(report)[0] == "host-oom-kill"


def test_a_loggers_words_on_the_line_of_the_header_count() -> None:
    text = (
        "(Worker pid=232) ERROR 03-02 08:25:25 pool.py:226] Exception in worker 3: NCCL error: unhandled "
        "system error (run with NCCL_DEBUG=INFO for details), Traceback (most recent call last):\n"
        '(Worker pid=232) ERROR 03-02 08:25:25 pool.py:226]   File "/home/ann/lab/pool.py", line 3, in run\n'
    )
    assert first(diagnosed(text))[0] == "nccl-system-error"


def watchdog(rank: int, text: str) -> str:
    head = f"[rank{rank}]:[E304 10:00:0{rank}.5 ProcessGroupNCCL.cpp:629]"
    return f"{head} [PG ID 0 PG GUID 0(default_pg) Rank {rank}] {text}\n"


def timed_out(rank: int, enqueued: int = 79) -> str:
    return watchdog(
        rank,
        "failure detected by watchdog at work sequence id: 78 PG status: last enqueued work: "
        f"{enqueued}, last completed work: 77",
    )


CAUGHT = (
    "[rank1]:[E304 10:00:01.4 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=78, OpType=BROADCAST, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600088 milliseconds "
    "before timing out.\n"
)
DUMPED = (
    "Received a dump signal due to a collective timeout from  rank 1 and we will try our best to dump the debug info. "
    "Last enqueued NCCL work: 77, last completed NCCL work: 77."
)


def test_a_rank_that_never_issued_the_collective_is_suspected() -> None:
    report = diagnosed(CAUGHT + timed_out(1) + timed_out(2, 80) + watchdog(3, DUMPED))
    assert first(report) == ("watchdog-timeout", 3)
    assert report.verdict == "symptom-only"
    assert "enqueued 77" in report.suspects[0].because
    assert any("Last enqueued NCCL work: 77" in each.text for each in report.initiating.evidence)  # type: ignore[union-attr]


def test_two_ranks_that_stayed_behind_are_both_suspects() -> None:
    text = CAUGHT + "".join(timed_out(rank) for rank in (1, 2, 5)) + watchdog(0, DUMPED) + watchdog(4, DUMPED)
    report = diagnosed(text)
    assert first(report)[1] is None
    assert [each.rank for each in report.suspects] == [0, 4]


def test_a_rank_that_ran_ahead_less_far_is_not_behind() -> None:
    report = diagnosed(CAUGHT + timed_out(1, 84) + timed_out(2, 78) + timed_out(3, 79))
    assert first(report)[1] is None
    assert report.suspects == ()


def test_counters_of_different_groups_are_not_compared() -> None:
    other = watchdog(3, DUMPED).replace("PG ID 0 PG GUID 0(default_pg)", "PG ID 2 PG GUID 9(tensor)")
    report = diagnosed(CAUGHT + timed_out(1) + timed_out(2) + other)
    assert not [each for each in report.suspects if "enqueued" in each.because]


def test_a_rank_whose_watchdog_line_is_cut_off_is_not_silent() -> None:
    report = diagnosed(CAUGHT + "[rank4]:[E304 10:00:01.9 ProcessGroupNCCL.cpp:632] [Ra\n")
    assert first(report) == ("watchdog-timeout", None)
    assert report.suspects == ()


def test_of_two_ranks_that_disagree_none_is_the_first() -> None:
    print_of = "CollectiveFingerPrint(SequenceNumber=3, OpType={}, TensorShape=[4])"
    text = (
        f"[rank1]: RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
        f"{print_of.format('ALLREDUCE')}, but Rank 0 is running collective: {print_of.format('BROADCAST')}.\n"
    )
    report = diagnosed(text)
    assert first(report) == ("collective-mismatch", None)
    assert [each.rank for each in report.suspects] == [0, 1]


def test_a_cut_traceback_among_several_ranks_names_no_rank() -> None:
    text = "[rank0]: step 3 loss 0.5\n[rank1]: step 3 loss 0.5\n" + traceback(1, "")
    assert first(diagnosed(text)) == ("unknown-failure", None)


def test_a_restart_without_any_progress_does_not_heal_the_attempt_before() -> None:
    agent = "torch.distributed.elastic.agent.server.api:[default]"
    failed = "failed (exitcode: -9) local_rank: 1 (pid: 70) of binary: x"
    text = (
        "step 1 loss 0.9\n"
        f"ERROR:torch.distributed.elastic.multiprocessing.api:{failed}\n"
        f"INFO:{agent} Worker group FAILED. 3/3 attempts left; will restart worker group\n"
        f"INFO:{agent} Starting worker group\n"
    )
    assert first(diagnosed(text))[0] == "sigkill"
    assert diagnosed(text + "step 2 loss 0.8\nstep 3 loss 0.7\n").verdict == "no-failure"


def test_one_rank_alone_in_the_text_is_no_witness_for_others() -> None:
    report = diagnosed("[rank2]: step 3 loss nan\n[rank2]: RuntimeError: loss is nan, stop\n")
    assert report.initiating is not None
    assert "others" not in report.initiating.reason


def test_an_exception_behind_words_that_no_prefix_describes() -> None:
    text = "U | 10:21 | pool | RuntimeError: CUDA out of memory. Tried to allocate 3.39 GiB. GPU 0 has\n"
    assert first(diagnosed(text))[0] == "cuda-oom"
    unknown = diagnosed("U | 10:21 | pool | PoolError: the third part is gone\n")
    assert (first(unknown)[0], unknown.verdict) == ("unknown-failure", "symptom-only")


def test_a_ray_task_whose_own_traceback_is_cut_is_unknown() -> None:
    text = (
        HEAD + "ray.exceptions.RayTaskError(PoolError): ray::Runner.run() (pid=104, ip=10.0.0.7)\n"
        '  File "/home/ann/lab/pool.py", line 94, in run\n    self.fit()\n'
    )
    report = diagnosed(text)
    assert (first(report)[0], report.verdict) == ("unknown-failure", "symptom-only")
    assert first(diagnosed(text + "ValueError: bad row\n"))[0] == "user-exception"


@pytest.mark.parametrize(
    "line",
    [
        "job preempted (node failure)",
        "WARNING pool: the third part has failed to close",
        "the pool was closed by peer",
        "worker 3 died",
    ],
)
def test_words_of_trouble_at_the_end_forbid_an_all_clear(line: str) -> None:
    report = diagnosed(f"step 1 loss 0.9\nstep 2 loss 0.8\n{line}\n")
    assert (first(report), report.verdict) == (("unknown-failure", None), "symptom-only")


@pytest.mark.parametrize(
    "line",
    [
        "INFO pool: 0 failed parts",
        "WARN Failed to open libibverbs.so[.1]",
        "UserWarning: Failed to load image extension",
        "container exited successfully with a zero exit code",
        "# what to do when a worker died",
    ],
)
def test_harmless_words_do_not(line: str) -> None:
    assert diagnosed(f"step 1 loss 0.9\n{line}\n").verdict == "no-failure"


def test_a_rank_that_lost_the_store_too_is_not_silent() -> None:
    text = (
        '[rank3]:[W625 23:35:35.3 ProcessGroupNCCL.cpp:1662] Failed to check the "should dump" flag on TCPStore\n'
        "[rank2]:[W625 23:35:35.3 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=6, addr=[::1]:37468, "
        "remote=[::1]:6006): failed to recv, got 0 bytes\n"
    )
    assert first(diagnosed(text)) == ("recv-zero", None)


def test_rows_of_which_one_lost_its_time_are_not_compared() -> None:
    whole = table((1, 1, "10:00:01"), (2, 1, "10:00:01"), root=2)
    assert first(diagnosed(whole[whole.index("  host") :])) == ("child-failed", None)


def test_a_rank_that_waited_for_the_group_is_not_the_one_that_failed() -> None:
    text = (
        "[rank2]: Traceback (most recent call last):\n"
        '[rank2]:   File "/home/ann/lab/train.py", line 12, in main\n'
        '[rank2]:     dist.init_process_group("nccl")\n'
        "[rank2]: RuntimeError: Timed out initializing process group in store based barrier on rank: 2, "
        "for key: store_based_barrier_key:1 (world_size=4, worker_count=3, timeout=0:30:00)\n"
    )
    assert first(diagnosed(text)) == ("world-size", None)


def test_a_cut_line_of_level_error_behind_a_bar_is_no_all_clear() -> None:
    glued = " 2%|2  | 32/1752 [01:08<1:22:56][rank4]:[E712 09:08:07.1 Engine.cpp:63] [Rank 4] So"
    assert diagnosed(" 2%|2  | 31/1752 [01:05<1:23:14]\n" + glued).verdict != "no-failure"


@pytest.mark.parametrize(
    "file",
    [
        "C:\\lab\\env\\Scripts\\accelerate.EXE\\__main__.py",
        "C:\\lab\\env\\Scripts\\kit-train.exe",
        "C:\\lab\\env\\Scripts\\kit-script.py",
        "/opt/kit/bin/kit-train",
        "/home/ann/.cache/huggingface/modules/transformers_modules/kit/net.py",
        "unsloth_compiled_cache/Kit.py",
        "/home/ann/.cache/torch_extensions/py311/kit/load.py",
        "/home/ann/tmp/pip-install-x7_ab12q/kit_00ff/setup.py",
    ],
)
def test_what_an_installation_wrote_is_no_code_of_the_user(file: str) -> None:
    text = f'Traceback (most recent call last):\n  File "{file}", line 8, in main\n    run()\nValueError: bad row 7\n'
    assert diagnosed(text).initiating.frame is None  # type: ignore[union-attr]


@pytest.mark.parametrize("file", ["/home/ann/bin/train.py", "bin/train.py", "C:\\lab\\Scripts\\train.py", "setup.py"])
def test_a_script_in_a_folder_of_commands_is_code_of_the_user(file: str) -> None:
    text = f'Traceback (most recent call last):\n  File "{file}", line 8, in main\n    run()\nValueError: bad row 7\n'
    assert diagnosed(text).initiating.frame.file == file  # type: ignore[union-attr]


CHECK = (
    "../aten/src/ATen/native/cuda/Indexing.cu:1146: indexSelectLargeIndex: block: [2,0,0], thread: [0,0,0] "
    "Assertion `srcIndex < srcSelectDimSize` failed.\n"
)
TRIGGERED = "RuntimeError: CUDA error: device-side assert triggered\n"


def test_a_check_of_the_kernel_that_stands_below_the_exception() -> None:
    report = diagnosed(HEAD + TRIGGERED + "\n" + CHECK)
    assert (report.verdict, first(report)) == ("established", ("assert-embedding", None))
    assert report.initiating.frame.line == 3  # type: ignore[union-attr]
    assert [each.line for each in report.initiating.evidence if "srcIndex" in each.text] == [5]  # type: ignore[union-attr]


def test_another_ranks_check_explains_nothing() -> None:
    report = diagnosed(f"[rank1]: {TRIGGERED}\n[rank0]: {CHECK}")
    assert (report.verdict, first(report)[1]) == ("symptom-only", None)
    assert [each.rank for each in report.suspects] == [0, 1]


OOM = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.mark.parametrize(
    "text",
    [
        f'it says "{OOM}"',
        f"with ```kit fit``` I get ```{OOM}```",
        f"what I see:\n> {OOM}\n",
        f"({OOM})",
        f"`{OOM}",
        f"a\n> > {OOM}\n",
        f"so: *{OOM}*",
    ],
)
def test_a_quoted_exception_is_no_all_clear(text: str) -> None:
    assert first(diagnosed(text)) == ("cuda-oom", None)


def test_a_quoted_exception_of_no_known_class_is_an_unknown_failure() -> None:
    report = diagnosed("it stops with `kit.KitError: bad row 7`")
    assert (report.verdict, first(report)) == ("symptom-only", ("unknown-failure", None))


@pytest.mark.parametrize(
    "text",
    [
        f"epoch 1 loss 0.4\n> {OOM}\nepoch 2 loss 0.3\nepoch 3 loss 0.2\n",
        f'# the FAQ on "{OOM}": use smaller batches\nepoch 1 loss 0.4\n',
        '    raise KitError("ValueError: bad row")\n',
        'epoch 3 loss 0.1\nTraining finished.\nnotes: see "ValueError: bad row" in the manual\n',
    ],
)
def test_what_a_run_got_over_and_what_source_code_holds_is_no_failure(text: str) -> None:
    assert diagnosed(text).verdict == "no-failure"


def test_a_failure_of_its_own_beats_a_quoted_one() -> None:
    assert first(diagnosed(f'as in "{OOM}"\n{HEAD}ValueError: bad row 7\n')) == ("user-exception", None)


@pytest.mark.parametrize(
    "command", ["['C:\\\\kit\\\\python.exe', 'fit.py', '--lr=1e-4',\n'--fast']", "'python3 fit.py'"]
)
def test_that_another_python_process_failed_does_not_tell_why(command: str) -> None:
    report = diagnosed(f"{HEAD}subprocess.CalledProcessError: Command '{command}' returned non-zero exit\nstatus 3.\n")
    assert (report.verdict, first(report)) == ("symptom-only", ("child-failed", None))
    assert "exit code 3" in report.cause


@pytest.mark.parametrize("command", ["['git', 'describe']", "['python', 'setup.py', 'build']"])
def test_a_failed_command_that_runs_no_script_is_an_exception_of_its_own(command: str) -> None:
    text = f"{HEAD}subprocess.CalledProcessError: Command '{command}' returned non-zero exit status 128.\n"
    assert first(diagnosed(text)) == ("user-exception", None)


def test_a_single_process_is_told_nothing_of_ranks() -> None:
    report = diagnosed(HEAD + "ValueError: bad row 7\n")
    assert report.verify == "python /home/ann/lab/train.py"
    assert len(report.fix) == 1
    assert "rank" not in to_text(report, colour=False)


def test_of_several_ranks_the_one_that_raised_is_the_one_to_look_at() -> None:
    report = diagnosed(traceback(2, "ValueError: bad row 7") + traceback(0, CLOSED) + traceback(1, CLOSED))
    assert report.verify == "torchrun --standalone --nproc-per-node 1 /home/ann/lab/train.py"
    assert "one of 3 ranks" in report.fix[1]


def test_a_text_that_speaks_of_ranks_and_numbers_none() -> None:
    report = diagnosed("starting with torchrun on two machines\n" + HEAD + "ValueError: bad row 7\n")
    assert "one of the ranks" in report.fix[1]


def test_a_build_that_failed_is_no_all_clear() -> None:
    report = diagnosed("building extension\nmake: *** [Makefile:12: kernels.o] Error 1\n")
    assert report.verdict != "no-failure"


def test_a_single_process_report_says_nothing_of_ranks() -> None:
    report = diagnosed("ValueError: bad row 7\n")
    assert "rank" not in to_text(report, False)
