"""However the measured command ends, it is said in one sentence, and no process stays behind.

Most scripts here do without torch: what is tested is the watching. ``SEND`` lets one speak as a probe would.
"""

import ast
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from firstfault.prove.messages import VARIABLE
from firstfault.prove.runner import Run, run

SEND = """
import json, os, sys
def send(**message):
    with open(os.path.join(os.environ["FIRSTFAULT_MEASURE"], f"{os.getpid()}.jsonl"), "a") as file:
        file.write(json.dumps(message) + "\\n")
send(kind="torch", version="2.13.0")
def window(index):
    send(kind="window", index=index, rank=0, world=1, stepped=True)
"""
CHILD = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open("number", "w").write(str(child.pid))
os.replace("number", "child")
"""
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals")


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., Run]:
    """Run a text as a script in an empty folder."""

    def start(code: str, *flags: str, **options: object) -> Run:
        (tmp_path / "train.py").write_text(code)
        return run([sys.executable, *flags, "train.py"], cwd=str(tmp_path), **options)  # type: ignore[arg-type]

    return start


def test_a_command_that_is_not_there() -> None:
    assert run(["no-such-program"]).ended == (
        "The command could not be started: no-such-program: No such file or directory."
    )


def test_a_script_without_its_python(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    assert run(["train.py"], cwd=str(tmp_path)).ended.endswith("started by its Python: python train.py.")


def test_a_python_that_the_probes_do_not_reach(python: Callable[..., Run]) -> None:
    ended = python("pass", "-I").ended
    assert ended.startswith("Not measured: the command started no Python that took up the probes (python -I")
    assert ended.endswith("It ended with status 0.")


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("pass", "The command ended by itself and never imported torch."),
        ("raise SystemExit(3)", "The command ended with status 3 before the first backward."),
        (
            "input('Overwrite? ')",
            "A question to the user at train.py:1, which nobody answers here, ended the run before the first backward.",
        ),
        (
            "def f():\n    raise KeyError('lr')\nf()",
            "KeyError: 'lr' at train.py:2 ended the run before the first backward.",
        ),
        (SEND + "window(0); raise MemoryError", "MemoryError at train.py:9 ended the run after 1 of 2 windows."),
        (SEND + "window(0)", "The script ended by itself after 1 of 2 windows."),
        (SEND + "window(0); window(1); send(kind='done')", "Stopped after 2 windows, as planned."),
        (
            SEND + "send(kind='progress', window=0, backwards=2048); send(kind='done')",
            "Stopped before the first optimizer step, after 2048 or more calls of backward.",
        ),
        (
            SEND + "send(kind='progress', window=0, backwards=32)",
            "The script ended by itself before the first optimizer step, after 32 or more calls of backward.",
        ),
    ],
)
def test_an_end_of_its_own(python: Callable[..., Run], code: str, ended: str) -> None:
    assert python(code).ended == ended


@POSIX
def test_the_system_kills_it(python: Callable[..., Run]) -> None:
    ended = python(SEND + "import os, signal; window(0); os.kill(os.getpid(), signal.SIGKILL)").ended
    assert ended == "SIGKILL ended the run after 1 of 2 windows; the system kills so when memory is exhausted."
    assert python("import os; os.abort()").ended == "SIGABRT ended the run before the first backward."


@POSIX
def test_a_run_that_hangs_is_ended_with_all_its_children(python: Callable[..., Run], tmp_path: Path) -> None:
    code = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + CHILD + "time.sleep(600)"
    assert python(code, timeout=1.5).ended == "The time limit of 1.5 s ended the run before the first backward."
    assert is_gone(int((tmp_path / "child").read_text()))


@POSIX
def test_children_that_outlive_the_script_are_ended(python: Callable[..., Run], tmp_path: Path) -> None:
    python(CHILD)
    assert is_gone(int((tmp_path / "child").read_text()))


@POSIX
def test_cancelled(python: Callable[..., Run], tmp_path: Path) -> None:
    code = CHILD + "import time; time.sleep(600)"
    assert python(code, cancelled=(tmp_path / "child").exists).ended == "Cancelled before the first backward."
    assert is_gone(int((tmp_path / "child").read_text()))


def test_garbage_on_the_output_and_between_the_messages(python: Callable[..., Run], tmp_path: Path) -> None:
    code = SEND + (
        "window(0)\n"
        "sys.stdout.buffer.write(bytes(range(256)) * 1000)\n"
        "with open(os.path.join(os.environ['FIRSTFAULT_MEASURE'], f'{os.getpid()}.jsonl'), 'ab') as file:\n"
        "    file.write(b'\\xff\\x00{\\n[1]\\n{\"kind\": 1}\\n')\n"
        "window(1)\n"
    )
    answer = python(code)
    assert answer.ended == "The script ended by itself after 2 windows. 3 messages of the probes could not be read."


def test_torch_is_missing_or_too_old(python: Callable[..., Run], tmp_path: Path) -> None:
    hidden = "import sys; sys.path[:] = [each for each in sys.path if 'site-packages' not in each]\n"
    missing = python(hidden + "import torch").ended
    assert missing == f"Not measured: torch is not installed in {sys.executable}."
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("__version__ = '1.13.1+cu117'")
    old = python("import torch").ended
    assert old == "Not measured: torch 1.13.1+cu117 is too old; 2.1 is the oldest that can be measured."


@pytest.mark.parametrize(
    "asked", ["import importlib.util as i; assert i.find_spec('torch')", "from importlib.metadata import *"]
)
def test_a_torch_that_was_looked_for_before_it_is_imported(
    python: Callable[..., Run], tmp_path: Path, asked: str
) -> None:
    """As transformers and datasets do; asking is not importing."""
    (tmp_path / "torch.py").write_text("__version__ = '1.13.1'")
    ended = python(f"{asked}\nimport torch\nassert 'firstfault' not in str(type(torch.__spec__.loader))").ended
    assert ended == "Not measured: torch 1.13.1 is too old; 2.1 is the oldest that can be measured."


def test_the_users_own_sitecustomize_still_runs(python: Callable[..., Run], tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import os\nMINE = os.getpid()\n")
    code = (
        "import sitecustomize, os, sys\nassert sitecustomize.MINE == os.getpid()\nassert 'inject' not in str(sys.path)"
    )
    answer = python(code, env={**os.environ, "PYTHONPATH": str(own)})
    assert answer.ended == "The command ended by itself and never imported torch."


def test_nothing_is_written_into_the_users_folder(python: Callable[..., Run], tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    python(SEND + "window(0)", env=environment)
    assert [each.name for each in tmp_path.iterdir()] == ["train.py"]


@POSIX
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_measurement_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "train.py").write_text(CHILD + "import time; time.sleep(600)")
    command = [sys.executable, "-m", "firstfault", "measure", "--", sys.executable, "train.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until((tmp_path / "child").exists)
        process.send_signal(number)
        assert process.wait(30) == 130
        assert process.stderr is not None
        assert process.stderr.read().endswith(b"firstfault: Interrupted; the run and its processes were ended.\n")
    assert is_gone(int((tmp_path / "child").read_text()))


@POSIX
def test_nothing_is_left_in_the_temporary_folder(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "firstfault", "measure", "--format", "json", "--", sys.executable, "-c", "pass"]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert answer.returncode == 2
    assert json.loads(answer.stdout)["ended"] == "The command ended by itself and never imported torch."
    assert not list(tmp_path.iterdir())


def is_gone(pid: int) -> bool:
    def gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z" if sys.platform == "linux" else False

    return wait_until(gone)


def wait_until(condition: Callable[[], bool]) -> bool:
    for _ in range(600):
        if condition():
            return True
        time.sleep(0.05)
    return False


PACKAGE = Path(run.__code__.co_filename).parent
THEIRS = [PACKAGE / name for name in ("messages.py", "record.py", "worker.py")]
THEIRS += sorted([*PACKAGE.glob("inject/*.py"), *PACKAGE.glob("probes/*.py")])


@pytest.mark.parametrize("module", THEIRS, ids=lambda path: path.name)
def test_what_runs_in_the_users_process_is_python_3_9(module: Path) -> None:
    text = module.read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 9))
    named = {each.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for each in node.keywords}
    assert not named & {"strict", "slots", "kw_only"}, "parameters that came with Python 3.10"
    assert "from __future__ import annotations" in text or " | " not in text


def test_both_processes_mean_the_same_variable() -> None:
    """The injected module names it by itself, before it can import anything of ours."""
    assert VARIABLE in (PACKAGE / "inject" / "sitecustomize.py").read_text()
