"""``firstfault/diagnose``: a report on a text or on paths, while the server goes on serving.

The work runs in a thread of its own. On a cancellation the answer goes out at once and the thread is told to stop; it
is a daemon, so that it never keeps the process alive either.
"""

import asyncio
import ctypes
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from pygls.exceptions import JsonRpcInvalidParams

from firstfault.lsp.progress import Say, announced, on_loop, settle, token_of
from firstfault.lsp.protocol import Report
from firstfault.lsp.wire import RequestFailed, Server

if TYPE_CHECKING:
    from firstfault.logs.source import Source

logger = logging.getLogger(__name__)


async def diagnose(ls: Server, params: Any) -> Report:
    from firstfault.library import LibraryError
    from firstfault.logs.source import Unreadable

    text, name, paths = _checked(params)
    with announced(ls, token_of(params), "Firstfault: diagnosing") as say:
        try:
            return await _in_thread(lambda: _report(text, name, paths, say))
        except (Unreadable, LibraryError) as error:
            raise RequestFailed(str(error)) from None


def _checked(params: Any) -> tuple[str | None, str, list[str]]:
    if not isinstance(params, dict):
        raise JsonRpcInvalidParams("firstfault/diagnose needs {text, name} or {paths}.")
    text, paths, name = params.get("text"), params.get("paths"), params.get("name", "selection")
    if (text is None) == (paths is None):
        raise JsonRpcInvalidParams("firstfault/diagnose needs either text or paths.")
    if text is not None and not (isinstance(text, str) and isinstance(name, str)):
        raise JsonRpcInvalidParams("text and name must be strings.")
    if paths is not None and not (isinstance(paths, list) and paths and all(isinstance(each, str) for each in paths)):
        raise JsonRpcInvalidParams("paths must be a list of one or more strings.")
    return text, name, paths or []


def _report(text: str | None, name: str, paths: list[str], say: Say) -> Report:
    from firstfault import library, logs
    from firstfault.diagnose import diagnose as diagnosed
    from firstfault.diagnose.report import to_json
    from firstfault.logs import source

    started = time.perf_counter()
    sources = [source.from_text(text, name)] if text is not None else source.from_paths(paths)
    known = library.load()
    log = logs.read(_Announced(sources, say), known.prefixes)
    for problem in log.problems:
        logger.warning("Skipped: %s", problem)
    say(f"Comparing with {len(known.signatures)} known failures")
    report = diagnosed(log, known)
    read = report.read._replace(seconds=round(time.perf_counter() - started, 3))
    return cast(Report, to_json(report._replace(read=read)))


class _Announced(list["Source"]):
    """The sources, each named while it is being read; of many small ones, one about every tenth of a second."""

    def __init__(self, sources: "list[Source]", say: Say) -> None:
        super().__init__(sources)
        self.say = say
        self.told = False

    def __iter__(self) -> "Iterator[Source]":
        last = 0.0 if not self.told else math.inf  # A second look at the sources is not told again.
        self.told = True
        for number, source in enumerate(list.__iter__(self), 1):
            if time.monotonic() - last > 0.1:
                last = time.monotonic()
                self.say(f"Reading {os.path.basename(source.name) or source.name} ({number} of {len(self)})")
            yield source


async def _in_thread(work: Callable[[], Report]) -> Report:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Report] = loop.create_future()
    thread = threading.Thread(target=_run, args=(work, loop, answer), name="diagnose", daemon=True)
    thread.start()
    try:
        return await answer
    except asyncio.CancelledError:
        _stop(thread)
        raise


class _Stopped(BaseException):
    """Raised inside of a thread whose answer nobody waits for; no ``except Exception`` on the way catches it."""


def _run(work: Callable[[], Report], loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[Report]") -> None:
    try:
        try:
            report = work()
        except Exception as error:
            on_loop(loop, settle, answer, None, error)
        else:
            on_loop(loop, settle, answer, report, None)
    except _Stopped:
        logger.info("A diagnosis was stopped.")


def _stop(thread: threading.Thread) -> None:
    """Python raises the exception between two of the thread's instructions; the work itself need not ask for it."""
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Stopped))
