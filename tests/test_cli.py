"""The command line as a person or a script meets it: words, formats, exit status, bad input."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parent / "cases"
EXAMPLES = Path(__file__).parent.parent / "examples"
FAULT = (CASES / "value-rank2.log").read_bytes()


def firstfault(*arguments: str, stdin: bytes = b"", **environment: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "firstfault", *arguments],
        input=stdin,
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
    )


def answer(*arguments: str, stdin: bytes = b"") -> dict:  # type: ignore[type-arg]
    return dict(json.loads(firstfault("diagnose", "--format", "json", *arguments, stdin=stdin).stdout))


def test_the_answer_stands_in_the_first_three_lines() -> None:
    done = firstfault("diagnose", str(CASES / "value-rank2.log"))
    first, where, todo = done.stdout.decode().splitlines()[:3]
    assert done.returncode == 1
    assert first
    assert "rank 2" in where and "job.py" in where and "strike" in where
    assert todo.startswith("Do:")


def test_what_is_to_be_done_is_said_once() -> None:
    text = firstfault("diagnose", str(CASES / "value-rank2.log")).stdout.decode()
    todo = text.splitlines()[2].removeprefix("Do:").strip()
    assert text.count(todo) == 1
    assert "\nOtherwise\n" in text


def test_a_missing_fact_is_asked_for_in_a_sentence() -> None:
    log = b"RuntimeError: DataLoader worker (pid(s) 4242) exited unexpectedly\n"
    assert "\nDo:     Find out what ended the worker" in firstfault("diagnose", "-", stdin=log).stdout.decode()


def test_the_report_names_its_page() -> None:
    text = firstfault("diagnose", str(CASES / "value-rank2.log")).stdout.decode()
    (name,) = [line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith("More: firstfault explain ")]
    assert name == answer(str(CASES / "value-rank2.log"))["initiating"]["signature"]
    assert firstfault("explain", name).returncode == 0


def test_one_line_is_one_line() -> None:
    assert "Read 1 line of 1 file" in firstfault("diagnose", "-", stdin=b"ValueError: boom\n").stdout.decode()


@pytest.mark.parametrize("bad", [b"\x1b]0;owned\x07", b"\x1b[", "\u009b2J".encode(), b"\x08\x08", b"\x7f", b"\x0e"])
def test_no_control_character_of_a_log_is_printed(bad: bytes) -> None:
    done = firstfault("diagnose", "-", stdin=b"[rank0]: ValueError: boom " + bad + b" owned\n")
    assert not [each for each in done.stdout.decode() if not each.isprintable() and each != "\n"]


def test_json_has_the_shape_that_is_promised() -> None:
    report = answer(str(CASES / "value-rank2.log"))
    assert list(report) == [
        "schema", "verdict", "initiating", "cause", "fix", "verify", "collateral", "suspects", "missing",
        "contradictions", "related", "read", "earlier",
    ]  # fmt: skip
    assert list(report["initiating"]) == [
        "signature", "title", "rank", "rank_basis", "host", "time", "exception", "message", "frame", "reason",
        "evidence",
    ]  # fmt: skip
    assert list(report["read"]) == ["files", "lines", "bytes", "ranks", "seconds", "skipped"]
    assert report["schema"] == 1
    assert report["read"]["bytes"] == len(FAULT)


def test_a_file_standard_input_and_two_paths_agree(tmp_path: Path) -> None:
    by_path = answer(str(CASES / "value-rank2.log"))
    by_stdin = answer("-", stdin=FAULT)
    (tmp_path / "quiet.log").write_text("step 1 loss 0.5\n")
    by_two = answer(str(CASES / "value-rank2.log"), str(tmp_path / "quiet.log"))
    for other in (by_stdin, by_two):
        assert other["initiating"]["message"] == by_path["initiating"]["message"]
        assert other["initiating"]["rank"] == 2


def test_markdown_keeps_lines_and_names_apart() -> None:
    log = b'Traceback (most recent call last):\n  File "/home/ann/a.py", line 3, in __call__\nValueError: a<b>*c\n'
    done = firstfault("diagnose", "--format", "markdown", "-", stdin=log)
    first, _, where, todo, *rest = done.stdout.decode().splitlines()
    assert first.startswith("# ") and "a\\<b>\\*c" in first
    assert where == "- Where:  /home/ann/a.py:3 in \\_\\_call\\_\\_"
    assert todo.startswith("- Do: ")
    assert "    <stdin>:3: ValueError: a<b>*c" in rest


def test_no_failure_gives_status_0() -> None:
    done = firstfault("diagnose", str(CASES / "healthy.log"))
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("missing.log", None, "There is no file or folder"),
        ("weights.log", b"\x7fELF\x02\x01\x01" + b"\x00" * 4000, "binary"),
        ("broken.log.gz", b"\x1f\x8b\x08\x00broken", "could not be read"),
    ],
)
def test_unreadable_input_is_a_sentence_and_status_2(tmp_path: Path, name: str, data: bytes | None, said: str) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    done = firstfault("diagnose", str(tmp_path / name))
    assert done.returncode == 2
    assert said in done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert done.stdout == b""


def test_an_empty_file_has_no_failure(tmp_path: Path) -> None:
    (tmp_path / "empty.log").write_bytes(b"")
    assert firstfault("diagnose", str(tmp_path / "empty.log")).returncode == 0


def test_utf_16_reads_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_bytes(FAULT.decode("utf-8").encode("utf-16"))
    assert answer(str(tmp_path / "run.log"))["initiating"]["rank"] == 2


def test_bad_usage_is_status_2() -> None:
    assert firstfault("diagnose").returncode == 2
    assert firstfault("no-such-command").returncode == 2
    assert firstfault("explain", "cuda-oomm").returncode == 2


def test_a_wrong_name_gets_a_suggestion() -> None:
    assert "cuda-oom" in firstfault("explain", "cuda-oomm").stderr.decode()


def test_a_name_like_no_other_gets_the_way_to_all_names() -> None:
    assert "explain --list" in firstfault("explain", "zzzz").stderr.decode()


@pytest.mark.parametrize("name", ["cuda-oom", "GA101", "ga101", "mean-of-means", "bn501"])
def test_explain_prints_a_page(name: str) -> None:
    done = firstfault("explain", name)
    assert done.returncode == 0
    assert done.stdout.startswith(b"# ")


def test_help_shows_how_to_work() -> None:
    text = firstfault("--help").stdout.decode()
    for word in ("diagnose", "check", "explain", "serve", "exit status"):
        assert word in text


def test_colour_only_on_a_terminal() -> None:
    assert b"\x1b[" not in firstfault("diagnose", str(CASES / "value-rank2.log")).stdout


def test_escapes_of_the_log_do_not_reach_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text("ValueError: boom \x1b]0;owned\x07 \x1b[2J\n")
    assert b"\x1b" not in firstfault("diagnose", str(tmp_path / "run.log")).stdout


def test_a_terminal_without_utf_8_gets_what_it_can_show() -> None:
    done = firstfault("diagnose", str(CASES / "value-rank2.log"), PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    done.stdout.decode("ascii")


def test_a_closed_pipe_is_no_error() -> None:
    command = f'"{sys.executable}" -m firstfault explain cuda-oom | head -n 1'
    done = subprocess.run(["sh", "-c", command], capture_output=True)
    assert done.stderr == b""


def test_check_finds_the_example_and_says_so_by_status() -> None:
    done = firstfault("check", "--format", "json", str(EXAMPLES / "train.py"))
    assert done.returncode == 1
    findings = json.loads(done.stdout)
    assert {"GA101", "BN501"} <= {each["code"] for each in findings}
    assert list(findings[0]) == [
        "code", "name", "file", "line", "column", "end_line", "end_column", "severity", "cell", "state", "message",
        "url", "related", "fixes",
    ]  # fmt: skip


def test_check_of_a_missing_path_is_status_2() -> None:
    done = firstfault("check", "nowhere.py")
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


def test_a_file_that_does_not_parse_is_a_hint(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n    return ((\n")
    done = firstfault("check", "--format", "json", str(tmp_path / "broken.py"))
    assert [(each["code"], each["severity"]) for each in json.loads(done.stdout)] == [("syntax-error", "hint")]
    assert done.returncode == 0


def test_explain_searches_by_the_text_of_an_error() -> None:
    done = firstfault(
        "explain", "--search", "Expected more than 1 value per channel when training, got input size [1, 8]"
    )
    assert done.stdout.decode().split()[0] == "batchnorm-batch-of-one"
    done = firstfault("explain", "--search", "expected more than 1 value")
    assert "batchnorm-batch-of-one" in done.stdout.decode()
    assert firstfault("explain", "--search", "no such words 7f3a").returncode == 2


def test_explain_lists_every_page_once() -> None:
    text = firstfault("explain", "--list").stdout.decode()
    for word in ("memory", "cuda-oom", "collectives", "watchdog-timeout", "GA101", "mean-of-means"):
        assert word in text
    names = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
    assert len(names) == len(set(names)) > 200
