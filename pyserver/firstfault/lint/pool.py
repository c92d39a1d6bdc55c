"""Many files on several processors. Few files are checked right here: a process costs more than they do."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.context import BaseContext

from firstfault.lint.check import Result, check_files
from firstfault.lint.rule import Applicability, all_rules
from firstfault.lint.walking import Problem, Script

_FEW = 40  # files
_CHUNK = 25  # files that one process takes at a time
_ENDED = "It was not checked: the process that read it ended unexpectedly."


def run(
    files: list[Script],
    allowed: frozenset[Applicability],
    jobs: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Result]:
    """The result of every file, in no particular order."""
    gc.set_threshold(100_000, 20, 100)  # many small values and few cycles: collecting costs more than it gives back
    say = on_progress or (lambda done, of: None)
    jobs = min(jobs or _processors(), max(len(files) // _CHUNK, 1))
    found: list[Result] = []
    try:
        several = jobs > 1 and len(files) > _FEW
        for results in _in_processes(files, allowed, jobs) if several else _in_this_process(files, allowed):
            found += results
            say(len(found), len(files))
    except (OSError, ImportError, NotImplementedError):  # a machine that allows no processes or no semaphores
        return list(check_files(files, allowed))
    return found


def _in_this_process(files: list[Script], allowed: frozenset[Applicability]) -> Iterator[list[Result]]:
    for chunk in _chunks(files):  # what a chunk's imports were parsed for is given back after it
        for result in check_files(chunk, allowed):
            yield [result]


def _in_processes(files: list[Script], allowed: frozenset[Applicability], jobs: int) -> Iterator[list[Result]]:
    all_rules()  # loaded once, before the processes part
    pool = ProcessPoolExecutor(jobs, mp_context=_context(), initializer=_leave_interrupts_to_the_parent)
    try:
        waiting = {pool.submit(_check_chunk, chunk, allowed): chunk for chunk in _chunks(files)}
        for done in as_completed(waiting):
            yield _results(done, waiting[done])
    finally:
        # Waited for: the program ends without ceremony, and a process left behind would hold its output open for ever.
        pool.shutdown(wait=True, cancel_futures=True)


def _chunks(files: list[Script]) -> list[list[Script]]:
    return [files[at : at + _CHUNK] for at in range(0, len(files), _CHUNK)]


def _results(done: "Future[list[Result]]", chunk: list[Script]) -> list[Result]:
    try:
        return done.result()
    except BrokenProcessPool:
        return [Result([], Problem(each.path, _ENDED)) for each in chunk]


def _check_chunk(chunk: list[Script], allowed: frozenset[Applicability]) -> list[Result]:
    return list(check_files(chunk, allowed))


def _context() -> BaseContext:
    """On Linux a process is a copy of this one, with all that is loaded; elsewhere that is not safe."""
    return get_context("fork" if sys.platform == "linux" else "spawn")


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
