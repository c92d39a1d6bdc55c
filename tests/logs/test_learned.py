"""Prefixes that the text itself teaches, and records that wrap a line each."""

import json

import pytest

from firstfault.logs import learned
from reading import raised, read, shape

BODY = [
    "Traceback (most recent call last):",
    '  File "/home/ann/lab/serve.py", line 31, in start',
    "    pool.open()",
    '  File "/home/ann/lab/pool.py", line 7, in open',
    "    raise OSError(name)",
    "OSError: no shared segment",
]


@pytest.mark.parametrize(
    "prefix",
    [
        "<<worker 3>> ",
        "[serve]: (Unit id=89) ERR 07-28 23:29:37 pool.py:226] ",
        "E       ",
        "@cell-2 12:00:01 ! ",
        "> ",
    ],
)
def test_what_stands_before_every_frame_is_a_prefix(prefix: str) -> None:
    assert shape("".join(f"{prefix}{line}\n" for line in BODY)) == [[("OSError", "no shared segment", None)]]


def test_numbers_in_a_learned_prefix_may_change() -> None:
    text = "".join(f"<12:00:{second:02}.5 unit 4> {line}\n" for second, line in enumerate(BODY))
    assert [each.blocks[0].type for each in raised(text)] == ["OSError"]


def test_two_writers_behind_learned_prefixes_do_not_mix() -> None:
    other = [line.replace("OSError", "KeyError") for line in BODY]
    lines = [f"<unit {unit}> {line}\n" for pair in zip(BODY, other, strict=True) for unit, line in enumerate(pair)]
    assert sorted(each.blocks[0].type for each in raised("".join(lines))) == ["KeyError", "OSError"]


def test_a_quotation_within_other_text_is_no_prefix() -> None:
    text = "step 1\nstep 2\nstep 3\nstep 4\nstep 5\nstep 6\n" + "".join(f"# {line}\n" for line in BODY)
    assert raised(text) == []


def test_a_sentence_before_one_frame_is_no_prefix() -> None:
    lines = ['the fault was found in  File "a.py", line 3, in f'] * 3
    assert learned.learn(lines, lines) is None


@pytest.mark.parametrize(
    "wrap",
    [
        lambda line: {"log": f"{line}\n", "stream": "stderr", "time": "2026-11-30T10:00:00Z"},
        lambda line: {"timestamp": 1764500000000, "message": line},
        lambda line: {"severity": "ERROR", "jsonPayload": {"message": line}},
        lambda line: {"textPayload": line, "resource": {"type": "k8s_container"}},
    ],
)
def test_records_of_one_line_each(wrap) -> None:  # type: ignore[no-untyped-def]
    log = read("".join(f"{json.dumps(wrap(line))}\n" for line in BODY))
    assert [each.blocks[0].message for each in log.raised] == ["no shared segment"]
    assert log.raised[0].blocks[0].at.raw == json.dumps(wrap(BODY[-1]))


def test_a_record_of_a_whole_traceback() -> None:
    text = json.dumps({"level": "error", "msg": "\n".join(BODY)})
    assert shape(text) == [[("OSError", "no shared segment", None)]]


def test_what_is_no_record_stays_as_it_is() -> None:
    lines = ["{'loss': 2.1, 'log': 3}", '{"log": ', '{"step": 3, "loss": 0.5}', '{"log": 3}']
    assert [line.text for line in read("\n".join(lines)).lines if line.text] == [line.rstrip() for line in lines]


def test_an_error_file_that_the_agent_prints() -> None:
    text = (
        "ERROR:torch.distributed.elastic.multiprocessing.errors.error_handler:{\n"
        '  "message": {\n    "message": "OSError: no shared segment",\n    "extraInfo": {\n'
        '      "py_callstack": "Traceback (most recent call last):\\n  File \\"/home/ann/lab/serve.py\\", line 31\\n"\n'
    )
    assert shape(text) == [[("OSError", "no shared segment", None)]]


def test_a_text_that_was_pasted_indented() -> None:
    assert shape("".join(f"    {line}\n" for line in BODY)) == [[("OSError", "no shared segment", None)]]


def test_mpirun_tags_the_second_half_of_a_line_too() -> None:
    log = read("[1,19]<stderr>:OSError[1,19]<stderr>:: no shared segment\n")
    assert [(each.blocks[0].message, each.blocks[0].at.tags.rank) for each in log.raised] == [("no shared segment", 19)]


def test_a_text_that_is_one_quotation() -> None:
    log = read("> step 1\n>\n> step 2\n")
    assert [line.text for line in log.lines] == ["step 1", "", "step 2"]
    assert read("> step 1\nstep 2\nstep 3\n").lines[0].text == "> step 1"
