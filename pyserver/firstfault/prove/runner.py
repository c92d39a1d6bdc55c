"""Runs the user's command, unchanged, with the probes put on, and leaves no process behind.

The command inherits the environment; only PYTHONPATH gets one folder in front. What the script prints goes where the
caller says, and is never read: messages come through files of their own, so garbage on the output does not matter.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, NamedTuple

from firstfault.prove.messages import (
    VARIABLE,
    Message,
    Plan,
    Process,
    received,
    this_host,
    write_plan,
    write_replacement,
)
from firstfault.prove.process_tree import end_tree

INJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inject")
TIMEOUT = 600.0  # seconds; loading a model and data may take minutes
_POLL = 0.1
_LEAVE = 20.0  # seconds that a script has to leave after its last window was measured
_LAUNCHERS = ("ChildFailedError", "CalledProcessError", "ProcessRaisedException", "ProcessExitedException")


class Run(NamedTuple):
    """How the run ended, in one sentence, and what the processes sent."""

    ended: str
    processes: list[Process]
    finished: bool = False  # the script came to its own end


def run(
    command: Sequence[str],
    windows: int = 2,
    timeout: float = TIMEOUT,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    output: int | IO[bytes] = subprocess.DEVNULL,
    cancelled: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda _: None,
    replaced: tuple[str, str] | None = None,
) -> Run:
    """Run a command until it has sent its windows, or as long as it is allowed to. ``say`` is told how far it is.

    ``replaced``: the path of a script and the text that it runs with.
    """
    folder = tempfile.mkdtemp(prefix="firstfault-")
    try:
        words = list(command) if replaced is None else _replace(command, cwd or os.curdir, folder, *replaced)
        write_plan(Plan(folder, windows, os.getpid(), this_host(), replaced[0] if replaced else ""))
        return _run(words, folder, windows, timeout, cwd, env, output, _Watched(cancelled, say, windows))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(
    command: list[str],
    folder: str,
    windows: int,
    timeout: float,
    cwd: str | None,
    env: Mapping[str, str] | None,
    output: int | IO[bytes],
    watched: "_Watched",
) -> Run:
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=_environment(os.environ if env is None else env, folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=os.name == "posix",
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        return Run(f"The command could not be started: {command[0]}: {why}.{_by_a_python(command[0], cwd)}", [])
    try:
        reason = _wait(process, folder, timeout, watched)
    finally:  # also where the caller is interrupted
        end_tree(process.pid, process.poll() is not None, folder, [each.pid for each in received(folder)])
        process.wait()
    processes = received(folder)
    ended = _sentence(reason, process.returncode, processes, windows, timeout)
    stopped = any(each["kind"] == "done" for process in processes for each in process.messages)
    return Run(ended, processes, reason == "exited" and process.returncode == 0 and not stopped)


_STUB = """\
from firstfault.prove import replacing
replacing.run_as_main(globals(), {typed!r}, {path!r})
"""


def _replace(command: Sequence[str], cwd: str, folder: str, path: str, text: str) -> list[str]:
    """The command with a stub in the place of the script, where it names the script; see ``prove/replacing.py``."""
    write_replacement(folder, text)
    real = os.path.realpath(path)
    words = []
    for word in command:
        if word.endswith(".py") and os.path.realpath(os.path.join(cwd, word)) == real:
            stub = os.path.join(folder, "stub", os.path.basename(word))
            os.makedirs(os.path.dirname(stub), exist_ok=True)
            with open(stub, "w", encoding="utf-8") as file:
                file.write(_STUB.format(typed=word, path=os.path.join(os.path.realpath(cwd), word)))
            word = stub
        words.append(word)
    return words


def _by_a_python(name: str, cwd: str | None) -> str:
    is_script = name.endswith(".py") and os.path.isfile(os.path.join(cwd or "", name))
    return f" A script is started by its Python: python {name}." if is_script else ""


def _environment(base: Mapping[str, str], folder: str) -> dict[str, str]:
    path = base.get("PYTHONPATH")
    return {**base, "PYTHONPATH": f"{INJECT}{os.pathsep}{path}" if path else INJECT, VARIABLE: folder}


class _Watched(NamedTuple):
    """Whoever waits for the run: may end it, and wants to know how far it is."""

    cancelled: Callable[[], bool]
    say: Callable[[str], None]
    windows: int

    def tell(self, processes: list[Process]) -> None:
        self.say(_stage([each for process in processes for each in process.messages], self.windows))


def _wait(process: "subprocess.Popen[bytes]", folder: str, timeout: float, watched: _Watched) -> str:
    """Why waiting ended: exited, cancelled, timeout, or stuck after the last window."""
    deadline = time.monotonic() + timeout
    leave = None
    while True:
        try:
            process.wait(_POLL)
            return "exited"
        except subprocess.TimeoutExpired:
            pass
        now = time.monotonic()
        if watched.cancelled():
            return "cancelled"
        processes = received(folder)
        watched.tell(processes)
        if leave is None and _all_done(processes):
            leave = now + _LEAVE
        if leave is not None and now > leave:
            return "stuck"
        if leave is None and now > deadline:
            return "timeout"


def _all_done(processes: list[Process]) -> bool:
    messages = [each for process in processes for each in process.messages]
    ranks = max((each.get("world", 1) for each in messages if each["kind"] == "window"), default=1)
    return len([each for each in messages if each["kind"] == "done"]) >= int(ranks)


# -------------------------------------------------------------------------------------- how far it is, in a few words


def _stage(messages: list[Message], windows: int) -> str:
    if any(each["kind"] == "done" for each in messages):
        return "Ending the run"
    closed = len(_closed(messages))
    backwards = [each for each in messages if each["kind"] == "progress" and each.get("window", 0) >= closed]
    if closed or backwards:
        return f"Window {min(closed + 1, windows)} of {windows}"
    kinds = {each["kind"] for each in messages}
    if "torch" in kinds:
        return "Waiting for the first backward"
    return "Waiting for torch to be imported" if "python" in kinds else "Starting"


# -------------------------------------------------------------------------------------------- how it ended, in words


def _sentence(reason: str, status: int, processes: list[Process], windows: int, timeout: float) -> str:
    messages = [each for process in processes for each in process.messages]
    ended = _how(reason, status, messages, windows, timeout)
    garbage = sum(process.garbage for process in processes)
    if not garbage:
        return ended
    return f"{ended} {garbage} message{'s' if garbage > 1 else ''} of the probes could not be read."


def _how(reason: str, status: int, messages: list[Message], windows: int, timeout: float) -> str:
    so_far = _so_far(messages, windows)
    if reason == "cancelled":
        return f"Cancelled {so_far}."
    if reason == "timeout":
        return f"The time limit of {timeout:g} s ended the run {so_far}."
    if any(each["kind"] == "done" for each in messages):
        late = "; the script did not leave by itself and was ended" if reason == "stuck" else ""
        planned = ", as planned" if _closed(messages) else ""
        return f"Stopped {so_far}{planned}{late}."
    if not any(each["kind"] in ("python", "unfit") for each in messages):
        return _never_reached(status)
    unfit = [each["why"] for each in messages if each["kind"] == "unfit"]
    if unfit and not any(each["kind"] == "torch" for each in messages):
        return f"Not measured: {unfit[0]}."
    if status < 0:
        return f"{_signal(status)} ended the run {so_far}{_memory(status)}."
    raised = [each for each in messages if each["kind"] == "raised"]
    if raised:
        return f"{_exception(raised)} ended the run {so_far}."
    if status:
        return f"The command ended with status {status} {so_far}."
    if not any(each["kind"] == "torch" for each in messages):
        return "The command ended by itself and never imported torch."
    return f"The script ended by itself {so_far}."


def _so_far(messages: list[Message], windows: int) -> str:
    closed = _closed(messages)
    if closed:
        of = f"{len(closed)} of {windows} windows" if len(closed) != windows else f"{windows} windows"
        return f"after {of}" if windows > 1 else "after 1 window"
    backwards = max((each.get("backwards", 0) for each in messages if each["kind"] == "progress"), default=0)
    if backwards:
        return f"before the first optimizer step, after {backwards} or more calls of backward"
    return "before the first backward"


def _closed(messages: list[Message]) -> set[int]:
    return {each["index"] for each in messages if each["kind"] == "window" and each.get("stepped")}


def _never_reached(status: int) -> str:
    end = _signal(status) + " ended it" if status < 0 else f"It ended with status {status}"
    return (
        "Not measured: the command started no Python that took up the probes (python -I, -E and -S, and launchers "
        f"that clear PYTHONPATH, leave them out). {end}."
    )


def _signal(status: int) -> str:
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"Signal {-status}"


def _memory(status: int) -> str:
    return "; the system kills so when memory is exhausted" if _signal(status) == "SIGKILL" else ""


def _exception(raised: list[Message]) -> str:
    """The first that is not a launcher's own, which only says that a worker failed."""
    own = [each for each in raised if each.get("type") not in _LAUNCHERS] or raised
    first = own[0]
    place = f" at {os.path.basename(str(first['file']))}:{first['line']}" if first.get("file") else ""
    if first["type"] == "EOFError" and str(first.get("message")).startswith("EOF when reading"):
        return f"A question to the user{place}, which nobody answers here,"
    message = f": {first['message']}" if first.get("message") else ""
    return f"{first['type']}{message}{place}".rstrip(".")
