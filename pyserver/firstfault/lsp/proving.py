"""``firstfault/measure``: the user's command under probes, while the server goes on serving.

Only the user's own Python runs the command; here a thread waits for it. A cancelled request is answered at once, and
the thread ends the command's processes. The verdicts are kept for the texts that ran, and shown in the editor.
"""

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from pygls.exceptions import JsonRpcInvalidParams

from firstfault.lsp import convert, linting
from firstfault.lsp.printed import Printed
from firstfault.lsp.progress import Say, announced, on_loop, settle, token_of
from firstfault.lsp.protocol import Measurement, ScaffoldResult
from firstfault.lsp.wire import RequestFailed, Server

if TYPE_CHECKING:
    from firstfault.lint.rule import Finding
    from firstfault.prove.measured import Measured
    from firstfault.prove.render import Judged
    from firstfault.prove.verdict import Verdict

T = TypeVar("T")


class Command(NamedTuple):
    """What is run, and how."""

    words: list[str]
    cwd: str
    env: Mapping[str, str]
    windows: int
    timeout: float


class Outcome(NamedTuple):
    measured: "Measured"
    found: "list[Verdict]"
    printed: str


class Told(NamedTuple):
    """An outcome beside the findings, and as the client gets it."""

    outcome: Outcome
    judged: "list[Judged]"
    answer: Measurement


async def measure(ls: Server, params: Any) -> Measurement:
    command = checked(params, "firstfault/measure")
    with announced(ls, token_of(params), "Firstfault: measuring") as say:
        return (await measured_as_it_stands(ls, command, params.get("uri"), say)).answer


async def measured_as_it_stands(ls: Server, command: Command, uri: object, say: Say) -> Told:
    """Run the command, and keep what it says of the texts that ran."""
    texts = _texts(command, uri)
    findings = [each for path, text in texts.items() for each in measurable(ls, path, text)]
    outcome = await in_thread(ls, lambda cancelled: run(command, cancelled, say))
    told = tell(command, outcome, findings, texts)
    for path, text in texts.items():
        ls.verdicts.keep(path, text, told.judged)
    linting.refresh(ls)
    return told


def tell(command: Command, outcome: Outcome, findings: "list[Finding]", texts: Mapping[str, str]) -> Told:
    """``texts`` stand for what is on disk where findings are looked up."""
    from firstfault.measuring import join

    judged = join(findings, outcome.found, outcome.measured, source_in(texts))
    return Told(outcome, judged, _answer(command, outcome, judged))


def scaffold(ls: Server, params: Any) -> ScaffoldResult:
    """The text of a probe for a document, as the editor shows it."""
    from firstfault.lint.source import Unreadable, read_source
    from firstfault.scaffold import scaffold as scaffolded

    uri = params.get("uri") if isinstance(params, dict) else None
    if not isinstance(uri, str):
        raise JsonRpcInvalidParams("firstfault/scaffold needs {uri}.")
    document, path = ls.documents.get(uri), convert.path_of(uri)
    try:
        text = document.text if document is not None else read_source(path or "")
    except Unreadable as error:
        raise RequestFailed(str(error)) from None
    stem = os.path.splitext(os.path.basename(path or convert.name_of(uri)))[0] or "script"
    return {"text": scaffolded(text, path or f"{stem}.py"), "name": f"{stem}_probe.py"}


# ------------------------------------------------------------------------------------------------- the command


def checked(params: Any, method: str) -> Command:
    """The command of a request, its program found as a shell in that environment would find it."""
    words = params.get("command") if isinstance(params, dict) else None
    if not (isinstance(words, list) and words and all(isinstance(each, str) for each in words) and words[0]):
        raise JsonRpcInvalidParams(f"{method} needs a command, a list of strings.")
    env, cwd = params.get("env"), params.get("cwd")
    env = {str(name): str(value) for name, value in env.items()} if isinstance(env, dict) else dict(os.environ)
    cwd = cwd if isinstance(cwd, str) and cwd else os.getcwd()
    if not os.path.isdir(cwd):
        raise RequestFailed(f"There is no folder {cwd}.")
    windows, timeout = params.get("windows", 2), params.get("timeout", 600)
    if not isinstance(windows, int) or windows < 1 or not isinstance(timeout, int | float) or timeout <= 0:
        raise JsonRpcInvalidParams("windows and timeout must be numbers greater than 0.")
    return Command([_program(words[0], cwd, env), *words[1:]], cwd, env, windows, float(timeout))


def _program(name: str, cwd: str, env: Mapping[str, str]) -> str:
    if os.path.dirname(name):
        return os.path.join(cwd, name)
    found = shutil.which(name, path=env.get("PATH"))
    if found is None:
        raise RequestFailed(f"There is no program {name} on the path.")
    return found


def run(command: Command, cancelled: Callable[[], bool], say: Say, replaced: tuple[str, str] | None = None) -> Outcome:
    """In a thread of its own: the command from its start to its end. ``replaced``: a script, and another text of it."""
    from firstfault.measuring import measure as measured_command

    last = ""

    def say_once(message: str) -> None:
        nonlocal last
        if message != last:
            last = message
            say(message)

    with Printed() as printed:
        how = (command.windows, command.timeout, command.cwd, command.env, printed.place)
        measured, found = measured_command(command.words, *how, cancelled, say_once, replaced)
    return Outcome(measured, found, printed.text())


async def in_thread(ls: Server, work: Callable[[Callable[[], bool]], T]) -> T:
    """``work`` is given a function that says whether it shall end. Two runs at a time would disturb each other."""
    if any(not ended.is_set() for ended in ls.runs.values()):
        raise RequestFailed("A measurement is running already. Cancel it, or wait for its end.")
    loop, ended = asyncio.get_running_loop(), threading.Event()
    answer: asyncio.Future[T] = loop.create_future()

    def target() -> None:
        value, failure = None, None
        try:
            value = work(ended.is_set)
        except Exception as error:
            failure = error
        ls.runs.pop(thread, None)
        on_loop(loop, settle, answer, value, failure)

    thread = threading.Thread(target=target, name="measure", daemon=True)
    ls.runs[thread] = ended
    thread.start()
    try:
        return await answer
    except asyncio.CancelledError:
        ended.set()
        raise


# ------------------------------------------------------------------------------------------------- the texts


def _texts(command: Command, uri: object) -> dict[str, str]:
    """What is about to run, as far as findings may stand in it: the command's scripts and the document, from disk."""
    from firstfault.measuring import scripts_of

    shown = convert.path_of(uri) if isinstance(uri, str) else None
    named = [os.path.normpath(each) for each in scripts_of(command.words, command.cwd)]
    if shown is not None and not any(same_file(shown, each) for each in named):
        named.append(shown)
    found = {}
    for path in named:
        text = read(path)
        if text is not None and path.endswith(".py"):
            found[shown if shown and same_file(shown, path) else path] = text
    return found


def measurable(ls: Server, path: str, text: str) -> "list[Finding]":
    from firstfault.measuring import MEASURABLE

    found = linting.unmeasured(ls, text, path, convert.uri_of(path)) or []
    return [each for each in found if each.code.startswith(MEASURABLE)]


def source_in(texts: Mapping[str, str]) -> Callable[[str], str]:
    from firstfault.lint.source import read_source

    return lambda path: texts[path] if path in texts else read_source(path)


def read(path: str) -> str | None:
    from firstfault.lint.source import Unreadable, read_source

    try:
        return read_source(path)
    except Unreadable:
        return None


def same_file(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _answer(command: Command, outcome: Outcome, judged: "list[Judged]") -> Measurement:
    from firstfault.measuring import right
    from firstfault.prove import render
    from firstfault.prove.picture import to_svg

    answer = render.to_json(outcome.measured, judged)
    for shown, window in zip(answer["windows"], outcome.measured.windows, strict=True):
        shown["state"] = render.incomplete(window).strip(" ()")
        shown["remarks"] = list(render.remarks(window))
    answer["right"] = right(judged, outcome.found)
    answer["picture"] = to_svg(outcome.measured)
    answer["printed"] = outcome.printed
    answer["command"] = command.words
    return cast(Measurement, answer)
