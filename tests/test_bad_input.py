"""Bad input at the command line: a sentence, a right exit status, never a hang and never a traceback of ours."""

import bz2
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FAULT = (Path(__file__).parent / "cases" / "value-rank2.log").read_bytes()
SCRIPT = (ROOT / "examples" / "train.py").read_bytes()
NOTEBOOK = (ROOT / "examples" / "notebook.ipynb").read_bytes()
LONGEST_WAIT = 60  # seconds, until something counts as hanging


def firstfault(*arguments: str, stdin: bytes = b"", **environment: str) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [sys.executable, "-m", "firstfault", *arguments],
        input=stdin,
        capture_output=True,
        timeout=LONGEST_WAIT,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
    )
    assert b"Traceback (most recent call last)" not in done.stderr
    assert b"fault of Firstfault" not in done.stderr
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def shell(command: str) -> "subprocess.CompletedProcess[str]":
    """``firstfault`` in a shell, where streams can be closed."""
    line = command.replace("firstfault", f'"{sys.executable}" -m firstfault', 1)
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=LONGEST_WAIT)


needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")


# ------------------------------------------------------------------------------------------------ what is read


@needs_pipes
def test_a_pipe_in_a_folder_is_passed_by(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "control.log")
    os.mkfifo(tmp_path / "control.py")
    (tmp_path / "run.log").write_bytes(FAULT)
    (tmp_path / "train.py").write_bytes(SCRIPT)
    assert "Rank 2 failed first" in firstfault("diagnose", str(tmp_path)).stdout
    assert firstfault("check", str(tmp_path)).returncode == 1


@needs_pipes
@pytest.mark.parametrize("command", ["diagnose", "check"])
def test_a_pipe_that_is_named_is_refused(tmp_path: Path, command: str) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    done = firstfault(command, str(tmp_path / "pipe.py"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "neither a file nor a folder" in done.stderr


def test_a_pipe_that_is_named_says_how_pipes_are_read() -> None:
    done = shell(f"firstfault diagnose <(cat '{ROOT / 'README.md'}')")
    assert done.returncode == 2
    assert "COMMAND | firstfault diagnose -" in done.stderr


def test_links_in_a_circle_and_to_nowhere_end(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to(tmp_path)
    (tmp_path / "gone.log").symlink_to("nowhere")
    (tmp_path / "gone.py").symlink_to("nowhere")
    (tmp_path / "self.py").symlink_to("self.py")
    (tmp_path / "run.log").write_bytes(FAULT)
    (tmp_path / "train.py").write_bytes(SCRIPT)
    assert firstfault("diagnose", str(tmp_path)).returncode == 1
    done = firstfault("check", str(tmp_path))
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("twice", [["run.log", "run.log"], [".", "run.log"], ["run.log", "./run.log"]])
def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path, twice: list[str]) -> None:
    (tmp_path / "run.log").write_bytes(FAULT)
    done = firstfault("diagnose", "--format", "json", *(str(tmp_path / each) for each in twice))
    assert json.loads(done.stdout)["read"]["files"] == 1


def test_standard_input_that_is_named_twice_is_read_once() -> None:
    assert "Rank 2 failed first" in firstfault("diagnose", "-", "-", stdin=FAULT).stdout
    assert firstfault("check", "-", "-", stdin=SCRIPT).returncode == 1


def test_standard_input_may_be_packed() -> None:
    assert "Rank 2 failed first" in firstfault("diagnose", "-", stdin=gzip.compress(FAULT)).stdout


@pytest.mark.parametrize("data", [bz2.compress(FAULT), b"\xfd7zXZ\0" + bytes(range(200)), b"PK\x03\x04" + bytes(90)])
def test_other_packings_say_how_to_unpack(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "run.log").write_bytes(data)
    done = firstfault("diagnose", str(tmp_path / "run.log"))
    assert done.returncode == 2
    assert "Unpack it first" in done.stderr and "| firstfault diagnose -" in done.stderr


def test_a_log_that_ends_in_nuls_is_read(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_bytes(FAULT[-300:] + b"\0" * 3000)
    assert firstfault("diagnose", str(tmp_path / "run.log")).returncode == 1
    (tmp_path / "run.log").write_bytes(b"\0" * 3000)
    assert firstfault("diagnose", str(tmp_path / "run.log")).returncode == 2


@pytest.mark.parametrize("command", ["diagnose", "check"])
def test_an_empty_name_can_be_seen(command: str) -> None:
    done = firstfault(command, "")
    assert done.returncode == 2
    assert "''" in done.stderr


def test_an_empty_text_is_said_to_be_empty() -> None:
    done = firstfault("diagnose", "-")
    assert done.returncode == 0
    assert "The text is empty." in done.stdout and "finished" not in done.stdout


# --------------------------------------------------------------------------------------------- what is checked


@pytest.mark.parametrize("codec", ["punycode", "undefined", "rot13", "hex", "no-such"])
def test_a_strange_coding_comment_is_a_sentence(tmp_path: Path, codec: str) -> None:
    (tmp_path / "train.py").write_bytes(f"# coding: {codec}\n".encode() + SCRIPT)
    done = firstfault("check", str(tmp_path / "train.py"))
    assert done.returncode == 2
    assert codec in done.stderr


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (SCRIPT.decode().encode("utf-16"), "UTF-16"),
        (SCRIPT + b"\0", "null bytes"),
        ("# größe\n".encode("latin-1") + SCRIPT, "utf-8"),
        (b"#" * 20_000_001, "20 MB"),
    ],
)
def test_a_file_and_standard_input_are_refused_alike(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "train.py").write_bytes(data)
    for done in (firstfault("check", str(tmp_path / "train.py")), firstfault("check", "-", stdin=data)):
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr


def test_a_notebook_comes_on_standard_input_too() -> None:
    findings = json.loads(firstfault("check", "--format", "json", "-", stdin=NOTEBOOK).stdout)
    assert {"GA101", "BN501"} <= {each["code"] for each in findings}
    assert all(each["cell"] is not None for each in findings)


def test_a_notebook_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "train.ipynb").write_bytes(b"\xef\xbb\xbf" + NOTEBOOK)
    assert firstfault("check", str(tmp_path / "train.ipynb")).returncode == 1


@pytest.mark.parametrize("cells", ["null", '"abc"', "[1, 2]", '[{"cell_type": "code", "source": [1]}]', "[" * 60_000])
def test_a_broken_notebook_is_a_hint(tmp_path: Path, cells: str) -> None:
    (tmp_path / "train.ipynb").write_text(f'{{"cells": {cells}}}')
    done = firstfault("check", "--format", "json", str(tmp_path / "train.ipynb"))
    assert [each["code"] for each in json.loads(done.stdout)] == ["syntax-error"]
    assert done.returncode == 0


@pytest.mark.parametrize("deep", ["-" * 50_000 + "1", "a" + ".b" * 20_000, "lambda: " * 5_000 + "1"])
def test_what_is_nested_too_deeply_is_said_in_words(tmp_path: Path, deep: str) -> None:
    (tmp_path / "train.py").write_bytes(SCRIPT + f"\nx = {deep}\n".encode())
    done = firstfault("check", str(tmp_path / "train.py"))
    if done.returncode == 0:  # a Python whose parser goes deeper finds what there is to find
        assert "nested too deeply" in done.stdout


def test_a_line_that_ends_at_a_lone_carriage_return_moves_the_findings_by_one() -> None:
    def places(script: bytes) -> set[tuple[str, int]]:
        findings = json.loads(firstfault("check", "--format", "json", "-", stdin=script).stdout)
        return {(each["code"], each["line"]) for each in findings if each["code"] != "syntax-error"}

    repaired = SCRIPT.replace(b"import torch\n", b"\r    import torch\n", 1)
    assert places(SCRIPT)
    assert places(repaired) == {(code, line + 1) for code, line in places(SCRIPT)}


def test_a_folder_without_scripts_is_no_clean_folder(tmp_path: Path) -> None:
    done = firstfault("check", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "no .py or .ipynb file" in done.stderr


def test_the_summary_counts_what_was_checked(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "b.py").write_text("x = 1\n")
    assert firstfault("check", str(tmp_path)).stdout == "No findings in 2 files.\n"
    (tmp_path / "c.py").write_text("def f(:\n")
    assert firstfault("check", str(tmp_path)).stdout.endswith("1 hint in 1 of 3 files.\n")


def test_escapes_of_a_script_do_not_reach_the_terminal(tmp_path: Path) -> None:
    line = b"loss = loss / ACCUMULATION_STEPS"
    (tmp_path / "train.py").write_bytes(SCRIPT.replace(line, line + b"  # \x1b]0;owned\x07 \x1b[2J"))
    done = firstfault("check", str(tmp_path / "train.py"))
    assert "owned" in done.stdout
    assert "\x1b" not in done.stdout and "\x07" not in done.stdout


# --------------------------------------------------------------------------------------------- where it is run


@pytest.mark.parametrize("command", ["diagnose LOG", "check SCRIPT"])
@pytest.mark.parametrize("streams", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_closed_streams_do_not_change_the_status(tmp_path: Path, command: str, streams: str) -> None:
    (tmp_path / "run.log").write_bytes(FAULT)
    (tmp_path / "train.py").write_bytes(SCRIPT)
    named = command.replace("LOG", str(tmp_path / "run.log")).replace("SCRIPT", str(tmp_path / "train.py"))
    done = shell(f"firstfault {named} {streams}")
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("command", ["diagnose -", "check -", "serve"])
def test_a_closed_standard_input_is_a_sentence(command: str) -> None:
    done = shell(f"firstfault {command} <&-")
    assert done.returncode == 2
    assert "Standard input is closed" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("command", ["diagnose examples/logs", "check examples/train.py", "explain GA101"])
def test_a_full_disk_is_a_sentence(command: str) -> None:
    done = shell(f"cd '{ROOT}' && exec firstfault {command} > /dev/full")
    assert done.returncode == 2
    assert done.stderr.startswith("firstfault: The answer could not be written: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_home_that_cannot_be_written_costs_no_answer() -> None:
    for place in ("/nonexistent", "/dev/null"):
        done = firstfault("explain", "cuda-oom", HOME=place, XDG_CACHE_HOME=place)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_broken_signature_is_named_by_every_command(tmp_path: Path) -> None:
    broken = tmp_path / "signatures" / "failures" / "memory" / "own-id.toml"
    broken.parent.mkdir(parents=True)
    broken.write_text('id = "another"\n')
    program = (
        "import sys; from firstfault import cli, library; "
        f"library.CHECKOUT = {str(tmp_path / 'signatures')!r}; library.PACKAGED = 'nowhere'; "
        "sys.exit(cli.main(sys.argv[1:]))"
    )
    for command in (["diagnose", "-"], ["explain", "cuda-oom"], ["explain", "GA101"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *command],
            input=b"",
            capture_output=True,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        )
        assert done.returncode == 2
        assert b"own-id.toml: id must be the file's name" in done.stderr
        assert b"Traceback" not in done.stderr


def test_what_was_not_foreseen_is_neither_a_traceback_nor_a_failure_found() -> None:
    program = "import sys; from firstfault import cli, explain; explain.page = None; sys.exit(cli.main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", program, "explain", "GA101"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "fault of Firstfault itself" in done.stderr and "cli.py:" in done.stderr
    assert "Traceback" not in done.stderr
