"""Starts an experiment in the user's interpreter, waits as long as it may take, and leaves no process behind."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from firstfault.prove.messages import received
from firstfault.prove.process_tree import end_tree

_START = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker", "start.py")
_POLL = 0.02
_LAST_LINES = 3
# An experiment is small and wants every bit equal: no GPU, no compiled code, one thread, no second BLAS.
_SURROUNDINGS = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "TORCHDYNAMO_DISABLE": "1",
                 "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "WANDB_MODE": "disabled"}  # fmt: skip

Measured = dict[str, Any]


class Setting(NamedTuple):
    probe: str
    python: str
    micro_batches: int = 4
    samples: int = 8
    ranks: int = 1
    timeout: float = 300.0
    cancelled: Callable[[], bool] = lambda: False


class Refused(Exception):
    """Why nothing was measured, in one sentence; ``trace`` is the user's own traceback, if it was their code."""

    def __init__(self, sentence: str, trace: str = "") -> None:
        super().__init__(sentence)
        self.sentence, self.trace = sentence, trace


def experiment(setting: Setting) -> tuple[Measured, Measured | None]:
    """What one process measured, and, where ranks are asked for, what they measured together."""
    deadline = time.monotonic() + setting.timeout
    measured = _measured(setting, deadline, [[]], single=False)
    if setting.ranks == 1:
        return measured, None
    single = measured["precision"] != "float64"
    return measured, _measured(setting, deadline, [[str(rank)] for rank in range(setting.ranks)], single)


def _measured(setting: Setting, deadline: float, processes: list[list[str]], single: bool) -> Measured:
    folder = tempfile.mkdtemp(prefix="firstfault-")
    started: list[subprocess.Popen[bytes]] = []
    try:
        _write_plan(setting, folder, single)
        for arguments in processes:
            started.append(_started(setting, folder, arguments))
        ended = _wait(started, deadline, setting.cancelled)
        return _answer(setting, folder, ended, [each.poll() for each in started])
    finally:  # also where the caller is interrupted
        for process in started:
            end_tree(process.pid, process.poll() is not None, folder)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _write_plan(setting: Setting, folder: str, single: bool) -> None:
    plan = {
        "path": os.path.abspath(setting.probe),
        "micro_batches": setting.micro_batches,
        "samples": setting.samples,
        "ranks": setting.ranks,
        "single": single,
    }
    with open(os.path.join(folder, "experiment.json"), "w", encoding="utf-8") as file:
        json.dump(plan, file)


def _started(setting: Setting, folder: str, arguments: list[str]) -> "subprocess.Popen[bytes]":
    # The folder in the environment is how the ends of a process tree are found (process_tree.py).
    environment = {**os.environ, **_SURROUNDINGS, "FIRSTFAULT_EXPERIMENT": folder}
    with open(os.path.join(folder, "stderr" + "".join(arguments)), "wb") as errors:
        try:
            return subprocess.Popen(
                [setting.python, _START, folder, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # the user's prints; the answer comes through a file of its own
                stderr=errors,
                start_new_session=os.name == "posix",
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise Refused(f"{setting.python} could not be started: {why}.") from error


def _wait(started: "list[subprocess.Popen[bytes]]", deadline: float, cancelled: Callable[[], bool]) -> str:
    """Why waiting ended. A rank that failed keeps the others waiting, so the first failure ends all."""
    while True:
        states = [process.poll() for process in started]
        if all(state is not None for state in states) or any(state for state in states):
            return "exited"
        if cancelled():
            return "cancelled"
        if time.monotonic() > deadline:
            return "timeout"
        time.sleep(_POLL)


def _answer(setting: Setting, folder: str, ended: str, states: list[int | None]) -> Measured:
    messages = [each for process in received(folder) for each in process.messages]
    refused = next((each for each in messages if each["kind"] == "refused"), None)
    if refused is not None:
        raise Refused(str(refused["sentence"]), str(refused.get("trace", "")))
    where = next((f" in {each['where']}" for each in reversed(messages) if each["kind"] == "in"), "")
    if ended == "cancelled":
        raise Refused(f"Cancelled{where}.")
    if ended == "timeout":
        raise Refused(f"The time limit of {setting.timeout:g} s ended the experiment{where}.")
    answers = [each for each in messages if each["kind"] in ("measured", "ranked")]
    if len(answers) < len(states):
        raise Refused(_death(states, where), _last_words(folder))
    return answers[0]


def _death(states: list[int | None], where: str) -> str:
    state = next((each for each in states if each), 0) or 0
    if state >= 0:
        return f"The experiment's process ended with status {state}{where} and gave no answer."
    try:
        name = signal.Signals(-state).name
    except ValueError:
        name = f"Signal {-state}"
    memory = "; the system kills so when memory is exhausted" if name == "SIGKILL" else ""
    return f"{name} ended the experiment{where}{memory}."


def _last_words(folder: str) -> str:
    """What a process that died wrote last on its standard error."""
    for name in sorted(os.listdir(folder)):
        if name.startswith("stderr"):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                lines = [line.rstrip() for line in file.read()[-4000:].splitlines() if line.strip()]
            if lines:
                return "\n".join(lines[-_LAST_LINES:])
    return ""
