"""A measurement for people and for programs: text, JSON, and the picture of the target weights."""

import json
import math
import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

from firstfault.prove import details
from firstfault.prove.measured import Measured, Part, Window
from firstfault.prove.weights import Term, terms

_COLUMNS = ("rank", "micro-batch", "targets", "weight of one", "share", "share of targets")
_SHOWN = {
    "zero_grad": "zero_grad",
    "clip": "clip",
    "unscale": "unscale_",
    "step": "step",
    "skipped": "(step left out)",
    "update": "scaler.update",
    "schedule": "schedule",
    "ema": "average",
}
_MANY = 16  # rows of one window's table; nobody compares more by eye


class Judged(NamedTuple):
    """A verdict beside the finding that it is about, if the lint has one."""

    code: str
    name: str
    state: str  # proven, refuted, not measured
    message: str
    file: str | None
    line: int | None
    suspected: bool


def to_text(measured: Measured, judged: Iterable[Judged], refuted: Iterable[str] = ()) -> str:
    """The verdicts first, then one table for each window. ``refuted``: faults that no finding asked about."""
    none = "none was measured" if measured.complete else "nothing was measured"
    blocks = ["\n".join(_verdict(each)) for each in judged] or [f"No fault is suspected, and {none}."]
    others = ", ".join(refuted)
    blocks += [f"Measured as well, and right: {others}."] if others else []
    blocks += [measured.ended]
    blocks += ["\n".join(_table(window)) for window in measured.windows]
    notes = [f"Not measured by the probe {probe}: {why}." for probe, why in measured.notes]
    return "\n\n".join([*blocks, *(["\n".join(notes)] if notes else [])]) + "\n"


def _verdict(judged: Judged) -> Iterator[str]:
    place = f"{_short(judged.file)}:{judged.line}: " if judged.file else ""
    known = "" if judged.suspected or judged.state != "proven" else " (the lint does not see it)"
    yield f"{place}{judged.code} {judged.name}: {judged.state}{known}"
    yield f"  {judged.message}"


def _table(window: Window) -> Iterator[str]:
    yield f"Window {window.number + 1}{incomplete(window)}"
    found = terms(window)
    if not found:
        counts = ", ".join(f"{len(part.micro_batches)}" for part in window.parts)
        yield f"  {counts} calls of backward, no weights of targets: no loss function that is watched took part"
    for term in found:
        yield f"  {term.rows[0].loss.kind} at {_short(term.file)}:{term.line}"
        yield from _rows(term)
        yield f"  ratio {term.ratio:.4f}, weight x targets {term.mass:.4f}"
    yield from (f"  {line}" for line in remarks(window))


def remarks(window: Window) -> Iterator[str]:
    """What a window's table says below its weights."""
    yield f"calls: {', '.join(_calls(window.parts[0]))}"
    yield from details.lines(window)


def _calls(part: Part) -> Iterator[str]:
    """The order of the calls, what is the same several times in a row told once."""
    events = [event for event in part.events if event.name in _SHOWN]
    names: list[str] = []
    for number in range(len(part.micro_batches) + 1):
        names += ["backward"] * (number > 0)
        names += [_SHOWN[event.name] for event in events if event.after == number]
    for name, group in groupby(_rounds(names)):
        times = len(list(group))
        yield f"{times} x {name}" if times > 1 else name


def _rounds(names: list[str]) -> Iterator[str]:
    """Each backward together with what follows it up to the next, so that rounds that are alike are told once."""
    stop = names.index("step") if "step" in names else len(names)
    joined = " ".join(names[:stop]).replace("backward", "\nbackward").split("\n")
    for each in filter(None, (part.strip() for part in joined)):
        yield f"({each.replace(' ', ', ')})" if " " in each else each
    yield from names[stop:]


def incomplete(window: Window) -> str:
    """Why a window does not count, in brackets; empty where it does."""
    if any(part.skipped for part in window.parts):
        return " (the gradient scaler left the step out)"
    if not all(part.stepped for part in window.parts):
        return " (no optimizer step)"
    missing = window.world - len(window.parts)
    return f" ({missing} of {window.world} ranks missing)" if missing else ""


def _rows(term: Term) -> Iterator[str]:
    lines = [_COLUMNS]
    for row in term.rows[:_MANY]:
        share = row.loss.mass / term.mass if term.mass else 0.0
        right = row.loss.counted / term.counted
        cells = (f"{row.rank}", f"{row.micro_batch + 1}", f"{row.loss.targets:,}", f"{row.loss.weight:.6g}")
        lines.append((*cells, f"{share:.1%}", f"{right:.1%}"))
    first = 0 if term.window.world > 1 else 1
    widths = [max(len(line[at]) for line in lines) for at in range(len(_COLUMNS))]
    notes = ["", *("  dropped before the step" if row.dropped else "" for row in term.rows)]
    for line, note in zip(lines, notes, strict=False):
        yield "    " + "  ".join(line[at].rjust(widths[at]) for at in range(first, len(_COLUMNS))) + note
    if len(term.rows) > _MANY:
        yield f"    and {len(term.rows) - _MANY} more"


def to_json(measured: Measured, judged: Iterable[Judged]) -> dict[str, Any]:
    """The shape that stands in ``prove/measured.py``."""
    value = {
        "schema": 1,
        "ended": measured.ended,
        "ranks": [each._asdict() for each in measured.ranks],
        "windows": [_window_json(window) for window in measured.windows],
        "verdicts": [each._asdict() for each in judged],
        "notes": [{"probe": probe, "why": why} for probe, why in measured.notes],
    }
    finite: dict[str, Any] = _finite(value)
    return finite


def json_text(measured: Measured, judged: Iterable[Judged]) -> str:
    return json.dumps(to_json(measured, judged), indent=1, ensure_ascii=False) + "\n"


def _window_json(window: Window) -> dict[str, Any]:
    found = terms(window)
    main = max(found, key=lambda term: len(term.rows), default=None)
    return {
        "index": window.number,
        "complete": window.complete,
        "micro_batches": [row for term in found for row in _rows_json(term)],
        "ratio": main.ratio if main else None,
        "mass": main.mass if main else None,
        "ledger": [event for part in window.parts for event in _events_json(part)],
        **details.to_json(window),
    }


def _rows_json(term: Term) -> Iterator[dict[str, Any]]:
    for row in term.rows:
        yield {
            "rank": row.rank,
            "number": row.micro_batch,
            "loss": row.loss.kind,
            "reduction": row.loss.reduction,
            "file": row.loss.file,
            "line": row.loss.line,
            "targets": row.loss.targets,
            "weight": row.loss.weight,
            "share": row.loss.mass / term.mass if term.mass else None,
            "right_share": row.loss.counted / term.counted,
            "dropped": row.dropped,
        }


def _events_json(part: Part) -> Iterator[dict[str, Any]]:
    for event in part.events:
        yield {"rank": part.rank, "name": event.name, "after": event.after, "stepped": event.stepped, **event.details}


def _finite(value: Any) -> Any:
    """Editors refuse JSON with NaN in it."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _short(path: str | None) -> str:
    if not path:
        return ""
    try:
        short = os.path.relpath(path)
    except ValueError:  # another drive
        return path
    return path if short.startswith("..") else short
