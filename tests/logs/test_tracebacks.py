"""Tracebacks in all the shapes in which people paste them."""

import subprocess
import sys
import textwrap

import pytest

from reading import raised, read, shape

PLAIN = """\
Traceback (most recent call last):
  File "/home/ann/lab/train.py", line 40, in <module>
    main()
  File "/home/ann/lab/train.py", line 31, in main
    raise ValueError("bad row 7")
ValueError: bad row 7
"""


def printed_by_python(script: str) -> str:
    """What this very interpreter prints for a script that fails."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    return done.stderr


def test_plain() -> None:
    (one,) = raised(PLAIN)
    (block,) = one.blocks
    assert (block.type, block.message) == ("ValueError", "bad row 7")
    assert [(frame.line, frame.function) for frame in block.frames] == [(40, "<module>"), (31, "main")]
    assert block.at.number == 6


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("ValueError", "\x1b[1;35mValueError\x1b[0m").replace("File", "\x1b[32mFile\x1b[0m"),
        lambda text: "".join(f"[rank3]: {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"[default1]:[rank3]: {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"2026-01-02T03:04:05.678Z {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"trainer-0  | {line}\n" for line in text.splitlines()),
        lambda text: "Epoch 1:  40%|####      | 4/10 [00:01<00:02, loss=0.3]" + text,
        lambda text: "\ufeff" + text,
        lambda text: text.rstrip("\n"),
    ],
    ids=[
        "crlf",
        "colours",
        "rank",
        "tee",
        "timestamps",
        "compose",
        "glued to a bar",
        "byte order mark",
        "no last newline",
    ],
)
def test_the_same_traceback_in_other_clothes(change) -> None:  # type: ignore[no-untyped-def]
    assert shape(change(PLAIN)) == [[("ValueError", "bad row 7", None)]]
    assert len(raised(change(PLAIN))[0].blocks[0].frames) == 2


def test_direct_cause_and_context() -> None:
    text = printed_by_python(
        """
        def load(name):
            try:
                return {}[name]
            except KeyError as error:
                raise RuntimeError("no such column") from error
        try:
            load("x")
        except RuntimeError:
            int("n/a")
        """
    )
    assert shape(text) == [
        [
            ("KeyError", "'x'", "cause"),
            ("RuntimeError", "no such column", "context"),
            ("ValueError", "invalid literal for int() with base 10: 'n/a'", None),
        ]
    ]


def test_carets_and_repeated_frames_are_no_message() -> None:
    text = printed_by_python(
        """
        def down(n):
            return down(n + 1)
        down(0)
        """
    )
    assert shape(text) == [[("RecursionError", "maximum recursion depth exceeded", None)]]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups print so from 3.11 on")
def test_exception_group_members_come_before_the_group() -> None:
    text = printed_by_python(
        """
        def check(n):
            try:
                raise ValueError(f"batch {n}")
            except ValueError as error:
                return error
        raise ExceptionGroup("checks failed", [check(1), check(2)])
        """
    )
    (one,) = shape(text)
    assert one == [
        ("ValueError", "batch 1", "group"),
        ("ValueError", "batch 2", "group"),
        ("ExceptionGroup", "checks failed (2 sub-exceptions)", None),
    ]


def test_syntax_error() -> None:
    text = printed_by_python("exec('def f(:')")
    assert [one[-1][0] for one in shape(text)] == ["SyntaxError"]


def test_dataloader_worker_quotes_the_cause() -> None:
    text = """\
Traceback (most recent call last):
  File "/home/ann/lab/train.py", line 12, in main
    for batch in loader:
  File "/home/ann/env/lib/python3.11/site-packages/torch/_utils.py", line 733, in reraise
    raise exception
KeyError: Caught KeyError in DataLoader worker process 2.
Original Traceback (most recent call last):
  File "/home/ann/env/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 351, in _worker_loop
    data = fetcher.fetch(index)
  File "/home/ann/lab/rows.py", line 9, in __getitem__
    return row["age"]
KeyError: 'age'

"""
    assert shape(text) == [
        [("KeyError", "'age'", "wrapped"), ("KeyError", "Caught KeyError in DataLoader worker process 2.", None)]
    ]


def test_spawn_wrapper_quotes_a_whole_chain() -> None:
    text = """\
Traceback (most recent call last):
  File "/home/ann/lab/spawned.py", line 50, in <module>
    mp.spawn(work, nprocs=2)
  File "/home/ann/env/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 211, in join
    raise ProcessRaisedException(msg, error_index, failed_process.pid)
torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "/home/ann/lab/spawned.py", line 20, in work
    int("n/a")
ValueError: invalid literal for int() with base 10: 'n/a'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/ann/lab/spawned.py", line 22, in work
    raise RuntimeError("bad threshold") from error
RuntimeError: bad threshold
"""
    (one,) = shape(text)
    assert [(type_, link) for type_, _, link in one] == [
        ("ValueError", "cause"),
        ("RuntimeError", "wrapped"),
        ("torch.multiprocessing.spawn.ProcessRaisedException", None),
    ]


def test_cut_at_the_start() -> None:
    text = "\n".join(PLAIN.split("\n")[3:])
    assert shape(text) == [[("ValueError", "bad row 7", None)]]


def test_cut_at_the_end_keeps_the_frames_and_no_type() -> None:
    text = "\n".join(PLAIN.split("\n")[:5])
    (one,) = raised(text)
    assert (one.blocks[0].type, len(one.blocks[0].frames)) == ("", 2)


@pytest.mark.parametrize("stump", ["ray", "wells.e", "wells.errors."])
def test_the_first_letters_of_a_name_are_no_exception(stump: str) -> None:
    text = "\n".join([*PLAIN.split("\n")[:5], stump])
    assert raised(text)[0].blocks[0].type == ""


@pytest.mark.parametrize("name", ["KeyboardInterrupt", "socket.timeout"])
def test_a_whole_name_without_words_is_one(name: str) -> None:
    text = "\n".join([*PLAIN.split("\n")[:5], name])
    assert raised(text)[0].blocks[0].type == name


def test_only_the_last_line() -> None:
    (one,) = raised("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x7 and 8x16)\n")
    assert (one.origin, one.blocks[0].type) == ("bare", "RuntimeError")


def test_ranks_interleaved_line_by_line() -> None:
    first = [f"[rank0]: {line}" for line in PLAIN.splitlines()]
    second = [f"[rank1]: {line.replace('row 7', 'row 8')}" for line in PLAIN.splitlines()]
    text = "\n".join(line for pair in zip(first, second, strict=True) for line in pair)
    assert [one[0][1] for one in shape(text)] == ["bad row 7", "bad row 8"]


def test_ignored_and_thread_exceptions_are_marked() -> None:
    text = "Exception ignored in: <function Pool.__del__ at 0x7f>\n" + PLAIN
    assert [one.ignored for one in raised(text)] == [True]
    text = "Exception in thread Thread-1 (_producer):\n" + PLAIN
    assert [one.thread for one in raised(text)] == ["Thread-1 (_producer)"]


def test_faulthandler_counts_only_the_current_thread_innermost_last() -> None:
    text = """\
Fatal Python error: Segmentation fault

Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Current thread 0x00007f02 (most recent call first):
  File "/home/ann/lab/native.py", line 15 in transform
  File "/home/ann/lab/train.py", line 60 in main

Extension modules: numpy, torch (total: 2)
"""
    (one,) = raised(text)
    assert one.origin == "fatal"
    assert [frame.function for frame in one.blocks[0].frames] == ["main", "transform"]


def test_terminate_with_what() -> None:
    text = "terminate called after throwing an instance of 'std::out_of_range'\n  what():  vector::at: 9 >= 3\n"
    (one,) = raised(text)
    assert (one.origin, one.blocks[0].type, one.blocks[0].message) == (
        "terminate",
        "std::out_of_range",
        "vector::at: 9 >= 3",
    )


def test_torch_advice_below_the_message_belongs_to_it() -> None:
    text = (
        "RuntimeError: CUDA error: device-side assert triggered\n"
        "CUDA kernel errors might be asynchronously reported at some other API call.\n"
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
        "\n"
        "epoch 3 loss 0.2\n"
    )
    (one,) = raised(text)
    assert "CUDA_LAUNCH_BLOCKING" in one.blocks[0].message
    assert "epoch 3" not in one.blocks[0].message


def test_anomaly_mode_shows_a_forward_call_that_raised_nothing() -> None:
    text = (
        "/home/ann/env/lib/python3.11/site-packages/torch/autograd/graph.py:979: UserWarning: Error detected in "
        "PowBackward0. Traceback of forward call that caused the error:\n"
        '  File "/home/ann/lab/train.py", line 20, in step\n'
        "    spread = x.pow(2)\n"
        " (Triggered internally at python_anomaly_mode.cpp:122.)\n"
    )
    assert raised(text) == []


def test_lines_are_cited_word_for_word() -> None:
    text = "\x1b[31m[rank1]: ValueError: boom\x1b[0m\n"
    (line,) = read(text).lines
    assert (line.raw, line.text, line.tags.rank) == (text.rstrip("\n"), "ValueError: boom", 1)


def test_a_throw_whose_line_ends_were_lost() -> None:
    text = "terminate called after throwing an instance of 'std::length_error' what(): too many parts. Sent 4\n"
    assert shape(text) == [[("std::length_error", "too many parts. Sent 4", None)]]


def test_ipython_before_version_8() -> None:
    text = """\
---------------------------------------------------------------------------
ValueError                                Traceback (most recent call last)
/tmp/ipykernel_11960/40754.py in <module>
      1 from lab import start
      2 #
----> 3 start(model, parts=2)

~/env/lib/python3.8/site-packages/lab/start.py in start(model, parts)
     11     if parts > 1:
---> 12         raise ValueError(parts)
     13 #

ValueError: 2
"""
    block = raised(text)[0].blocks[0]
    assert [(frame.line, frame.function) for frame in block.frames] == [(3, "<module>"), (12, "start")]
    cut = raised(text[: text.index("     13 #")])[0].blocks[0]
    assert (cut.type, cut.frames[-1].line) == ("", 12)


def test_rich_draws_a_box_around_the_frames() -> None:
    text = """\
╭─────────────────────────────── Traceback (most recent call last) ────────────────────────────────╮
│ /home/ann/lab/train.py:12 in main                                                                │
│                                                                                                  │
│    11 │   step = 3                                                                               │
│ ❱  12 │   raise ValueError(step)                                                                 │
│                                                                                                  │
│ /home/ann/lab/loop.py:31 in run                                                                  │
╰──────────────────────────────────────────────────────────────────────────────────────────────────╯
ValueError: 3
"""
    block = raised(text)[0].blocks[0]
    assert (block.type, block.message) == ("ValueError", "3")
    assert [(frame.file, frame.line) for frame in block.frames] == [
        ("/home/ann/lab/train.py", 12),
        ("/home/ann/lab/loop.py", 31),
    ]
    assert raised(text[: text.index("╰")])[0].blocks[0].type == ""
