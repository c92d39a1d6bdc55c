"""In the user's process: puts the probes on, sends windows, and ends the run when enough are measured."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import sys
from typing import Any

import torch

from firstfault.prove.messages import Plan, sender, this_host
from firstfault.prove.probes import install_all
from firstfault.prove.record import Record

OLDEST = (2, 1)
_leave = os._exit


class Measured(SystemExit):
    """Enough is measured. As an exit with status 0 it ends scripts, launchers and threads without a word."""


def start(plan: Plan) -> Record | None:
    """Called when torch has been imported. Never raises into the user's code."""
    send = sender(plan.folder)
    unfit = too_old()
    if unfit:
        send({"kind": "unfit", "why": unfit})
        return None
    send({"kind": "torch", "version": torch.__version__, "cuda": bool(torch.version.cuda)})
    record = Record(send, plan.windows, place=place)
    record.stop = _stopper(record)
    record.on("backward", lambda _: _end_without_watcher(plan, record.stop))
    install_all(record)
    atexit.register(_close, record)
    os._exit = _closing(record)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: _begin_anew(record))
    return record


def too_old() -> str:
    """Why this torch cannot be measured; empty where it can."""
    version = tuple(int(each) for each in re.findall(r"\d+", torch.__version__)[:2])
    if version >= OLDEST:
        return ""
    return f"torch {torch.__version__} is too old; 2.1 is the oldest that can be measured"


_known_place: list[tuple[int, int]] = []  # the group may be gone when the last window is sent


def place() -> tuple[int, int]:
    """Rank and number of ranks, as the process group has or had them, else as the launcher said."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        _known_place[:] = [(distributed.get_rank(), distributed.get_world_size())]
    if _known_place:
        return _known_place[0]
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _stopper(record: Record) -> Any:
    asked = False

    def stop() -> None:
        nonlocal asked
        if not asked:
            asked = True
            record.send({"kind": "done"})
            raise Measured(0)
        # The script caught the exit and goes on: there is nothing left to ask.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        _leave(0)

    return stop


def _close(record: Record) -> None:
    """What is open when the process ends: a last window, or one that no step closed."""
    if not record.muted and record.window.micro_batches:
        record.close()


def _closing(record: Record) -> Any:
    """An exit that runs no handlers: scripts take it, and every forked child of multiprocessing does. What has taken
    no step is left alone there, since a loader's worker may run a backward of its own."""

    def leave(status: int) -> None:
        with contextlib.suppress(Exception):
            if record.window.stepped:
                _close(record)
        _leave(status)

    return leave


def _begin_anew(record: Record) -> None:
    """In a forked child. A loader's worker sends nothing, since it runs no backward; a training process starts anew."""
    record.forget()


def _end_without_watcher(plan: Plan, stop: Any) -> None:
    """Whoever asked is gone (killed, crashed): a run that nobody waits for must not go on for hours, and takes along
    the folder that nobody will read."""
    if os.name != "posix" or not plan.watcher or plan.host != this_host():
        return
    try:
        os.kill(plan.watcher, 0)
    except ProcessLookupError:
        shutil.rmtree(plan.folder, ignore_errors=True)
        stop()
    except OSError:
        return
