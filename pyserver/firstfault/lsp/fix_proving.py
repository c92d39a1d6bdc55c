"""``firstfault/proveFix``: the script as it stands and the script with a fix, both measured, before the fix is applied.

A fix is proved where the run as it stands proves the fault, and the run with the fix refutes it, proves no other fault,
and takes as many optimizer steps of as many micro-batches. Anything less is said as it is.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pygls.exceptions import JsonRpcInvalidParams

from firstfault.lsp import convert
from firstfault.lsp.documents import Document
from firstfault.lsp.progress import Say, announced, token_of
from firstfault.lsp.protocol import Compared, FixProof, Measurement, TextEdit
from firstfault.lsp.proving import Command, Told, checked, in_thread, measurable, measured_as_it_stands, read, run, tell
from firstfault.lsp.verdicts import content
from firstfault.lsp.wire import RequestFailed, Server
from firstfault.text import apply_edits

if TYPE_CHECKING:
    from firstfault.lint.rule import Finding, Fix

_CHANGED = "The text has changed since the fix was offered. Ask for the fixes again."


class Asked(NamedTuple):
    document: Document
    path: str
    text: str  # as it is on disk, and as the editor shows it
    finding: "Finding"
    fix: "Fix"


async def prove_fix(ls: Server, params: Any) -> FixProof:
    command = checked(params, "firstfault/proveFix")
    asked = _asked(ls, params.get("fix"))
    with announced(ls, token_of(params), "Firstfault: proving a fix") as say:
        before = await measured_as_it_stands(ls, command, asked.document.uri, _ahead("As it stands", say))
        if _state(before, asked) != "proven":
            return _answer(asked, before, None, _unproven(before, asked))
        after = await _measured_with(ls, command, asked, _ahead("With the fix", say))
    return _answer(asked, before, after, _why_not(before, after, asked, command.windows))


async def _measured_with(ls: Server, command: Command, asked: Asked, say: Say) -> Told:
    """The fixed text stands for the file in every process of the run; see ``prove/replacing.py``."""
    fixed = apply_edits(asked.text, asked.fix.edits)
    findings = measurable(ls, asked.path, fixed)
    outcome = await in_thread(ls, lambda cancelled: run(command, cancelled, say, (asked.path, fixed)))
    return tell(command, outcome, findings, {asked.path: fixed})


def _ahead(run_: str, say: Say) -> Say:
    return lambda message: say(f"{run_}: {message[:1].lower()}{message[1:]}")


def _asked(ls: Server, fix: Any) -> Asked:
    """The fix that is named, in a text that is the same in the editor and on disk."""
    if not isinstance(fix, dict) or not isinstance(fix.get("uri"), str):
        raise JsonRpcInvalidParams("firstfault/proveFix needs a fix: {uri, version, code, line, title}.")
    document, path = ls.documents.get(fix["uri"]), convert.path_of(fix["uri"])
    if document is None or path is None:
        raise RequestFailed("Only a fix of a script that is open and saved can be proved.")
    if document.version != fix.get("version"):
        raise RequestFailed(_CHANGED)
    text = read(path)
    if text is None or content(text) != content(document.text):
        raise RequestFailed("The script on disk is another than the editor shows. Save it first.")
    for finding in measurable(ls, path, document.text):
        if (finding.code, finding.span.start.line) == (fix.get("code"), fix.get("line")):
            for each in finding.fixes:
                if convert.title(each) == fix.get("title"):
                    return Asked(document, path, document.text, finding, each)
    raise RequestFailed(_CHANGED)


# ------------------------------------------------------------------------------------------------- the judgement


def _state(told: Told, asked: Asked) -> str:
    return next((each.state for each in told.judged if _is_of(each, asked)), "not measured")


def _is_of(judged: Any, asked: Asked) -> bool:
    return (judged.code, judged.line) == (asked.finding.code, asked.finding.span.start.line)


def _unproven(before: Told, asked: Asked) -> str:
    """Without the fault there is nothing that a fix could be proved on."""
    judged = next((each for each in before.judged if _is_of(each, asked)), None)
    state, message = (judged.state, judged.message) if judged else ("not measured", before.outcome.measured.ended)
    return (
        f"{asked.finding.code} is {state} on the script as it stands, so this run cannot prove a fix of it. {message}"
    )


def _why_not(before: Told, after: Told, asked: Asked, windows: int) -> str:
    """Why the fix is not proved; empty where it is."""
    from firstfault.prove.verdict import verdict_for

    verdict = verdict_for(asked.finding.code, after.outcome.found)
    if verdict.state != "refuted":
        still = "still proven" if verdict.state == "proven" else "not measured"
        return f"With the fix, {verdict.code} is {still}. {verdict.message}"
    known = {each.code for each in before.outcome.found if each.state == "proven"}
    for each in after.outcome.found:
        if each.state == "proven" and not each.quiet and each.code not in known:
            return f"With the fix, another fault is proven: {each.code}. {each.message}"
    steps, size = len(after.outcome.measured.complete), _sizes(after)
    if steps != windows:
        return f"With the fix, the run took {steps} of {windows} optimizer steps. {after.outcome.measured.ended}"
    if size != _sizes(before):
        return f"With the fix, a step has {size} micro-batches; it had {_sizes(before)}."
    return ""


def _sizes(told: Told) -> str:
    sizes = sorted({window.length for window in told.outcome.measured.complete})
    return " or ".join(map(str, sizes)) or "no"


# ------------------------------------------------------------------------------------------------- the answer


def _answer(asked: Asked, before: Told, after: Told | None, why: str) -> FixProof:
    edits = convert.text_edits(asked.document, asked.fix)
    return {
        "proved": not why,
        "why": why,
        "code": asked.finding.code,
        "name": asked.finding.name,
        "title": convert.title(asked.fix),
        "compared": list(_compared(before, after)) if after else [],
        "before": before.answer,
        "after": after.answer if after else None,
        "version": asked.document.version,
        "edits": [cast(TextEdit, _edit(each)) for each in edits],
    }


def _edit(edit: Any) -> dict[str, Any]:
    corners = {name: getattr(edit.range, name) for name in ("start", "end")}
    places = {name: {"line": each.line, "character": each.character} for name, each in corners.items()}
    return {"range": places, "newText": edit.new_text}


def _compared(before: Told, after: Told) -> Iterator[Compared]:
    """The numbers that a right window has, those that were measured."""
    one, other = before.answer, after.answer
    yield from _row("Ratio of the target weights", _most(one, "ratio"), _most(other, "ratio"), 1)
    yield from _row("Weight × targets, added up", _mass(one), _mass(other), 1)
    yield from _row("Distance from the wanted gradient", _distance(one), _distance(other), 0)
    planned, taken = (str(len(each.outcome.measured.complete)) for each in (before, after))
    yield _line("Optimizer steps", planned, taken, planned)
    yield _line("Micro-batches in a step", _sizes(before), _sizes(after), _sizes(before))


def _row(what: str, before: float | None, after: float | None, wanted: int) -> Iterator[Compared]:
    if before is None or after is None:
        return
    # Sums of float32 over a window; a fault is away by more than a per cent.
    right = abs(after - wanted) < 1e-3
    shown = [f"{100 * each:.3g} %" if wanted == 0 else f"{each:.4f}" for each in (before, after)]
    if wanted == 0:
        shown = ["0" if each < 1e-5 else text for each, text in zip((before, after), shown, strict=True)]
    yield {"what": what, "before": shown[0], "after": shown[1], "wanted": str(wanted), "right": right}


def _line(what: str, before: str, after: str, wanted: str) -> Compared:
    return {"what": what, "before": before, "after": after, "wanted": wanted, "right": after == wanted}


def _most(answer: Measurement, name: str) -> float | None:
    return max(_numbers(window.get(name) for window in answer["windows"] if window["complete"]), default=None)


def _mass(answer: Measurement) -> float | None:
    """The one that is furthest from 1."""
    found = _numbers(window["mass"] for window in answer["windows"] if window["complete"])
    return max(found, key=lambda each: abs(each - 1), default=None)


def _distance(answer: Measurement) -> float | None:
    gradients = (window["gradient"] or {} for window in answer["windows"] if window["complete"])
    return max(_numbers(each.get("error") for each in gradients), default=None)


def _numbers(values: Iterable[Any]) -> list[float]:
    return [float(each) for each in values if isinstance(each, int | float)]
