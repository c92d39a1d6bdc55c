"""All processes of a measured command, whatever sessions they opened, and their end.

A launcher starts its workers in sessions of their own, so a signal to the process group does not reach them. On Linux
each process shows the environment it was started with, and the private folder in it is ours alone. Elsewhere the
descendants are followed from parent to child, together with the processes that announced themselves.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable

_GRACE = 3.0  # seconds between asking and forcing


def end_tree(root: int, reaped: bool, mark: str, announced: Iterable[int] = ()) -> None:
    """End whatever is left of the command: first asked, then forced. ``reaped``: the root's number may be another's."""
    if os.name != "posix":
        _end_on_windows(root)
        return
    known = set(announced)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not _signal_all(root, reaped and sys.platform == "linux", mark, known, number):
            return
        deadline = time.monotonic() + _GRACE
        while time.monotonic() < deadline and _alive(root, mark, known):
            time.sleep(0.05)


def _signal_all(root: int, group_gone: bool, mark: str, known: set[int], number: int) -> bool:
    """Whether there was anything to signal."""
    found = False
    if not group_gone:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(root, number)
            found = True
    for pid in _alive(root, mark, known):
        found = True
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
    return found


def _alive(root: int, mark: str, known: set[int]) -> set[int]:
    found = _marked(mark) if sys.platform == "linux" else _descendants(root, known)
    return found - {os.getpid()}


def _marked(mark: str) -> set[int]:
    wanted = mark.encode()
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if wanted in file.read():
                        found.add(int(name))
            except OSError:  # ended meanwhile, or another user's
                continue
    return found


def _descendants(root: int, known: set[int]) -> set[int]:
    try:
        table = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return set()
    rows = [line.split() for line in table.splitlines() if len(line.split()) == 3]
    living = {int(pid): int(parent) for pid, parent, state in rows if not state.startswith("Z")}
    found = {pid for pid in (root, *known) if pid in living}
    while True:
        children = {pid for pid, parent in living.items() if parent in found} - found
        if not children:
            return found
        found |= children


def _end_on_windows(root: int) -> None:
    subprocess.run(["taskkill", "/T", "/F", "/PID", str(root)], capture_output=True, timeout=30)
