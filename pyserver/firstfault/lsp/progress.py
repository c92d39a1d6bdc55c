"""Work that takes longer than a blink: its progress message, and the button that ends it."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from lsprotocol import types

if TYPE_CHECKING:
    from firstfault.lsp.wire import Server

Say = Callable[[str], None]


@contextlib.contextmanager
def announced(ls: "Server", token: int | str | None, title: str) -> Iterator[Say]:
    """The client's progress message around the task that runs; what is given adds to it, from any thread."""
    task = asyncio.current_task()
    if token is None or task is None:
        yield lambda _: None
        return
    ls.tasks[token] = task
    loop, progress = asyncio.get_running_loop(), ls.work_done_progress
    begin = types.WorkDoneProgressBegin(title=title, cancellable=True)
    ls.protocol.notify(types.PROGRESS, types.ProgressParams(token=token, value=begin))

    def report(message: str) -> None:
        if token in ls.tasks:
            progress.report(token, types.WorkDoneProgressReport(message=message))

    try:
        yield lambda message: on_loop(loop, report, message)
    finally:
        ls.tasks.pop(token, None)
        progress.end(token, types.WorkDoneProgressEnd())


def cancel(ls: "Server", params: types.WorkDoneProgressCancelParams) -> None:
    """The button of the progress message; ``$/cancelRequest`` comes to the same by another way."""
    task = ls.tasks.get(params.token)
    if task is not None:
        task.cancel()


def token_of(params: dict[str, Any]) -> int | str | None:
    token = params.get("workDoneToken")
    return token if isinstance(token, int | str) else None


def on_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *values: Any) -> None:
    with contextlib.suppress(RuntimeError):  # The loop has ended, and the process is about to.
        loop.call_soon_threadsafe(function, *values)


def settle(answer: "asyncio.Future[Any]", value: Any, error: Exception | None) -> None:
    """Give the answer to whoever waits for it; on the loop's own thread, and not where nobody waits any more."""
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(value)
