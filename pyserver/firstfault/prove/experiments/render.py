"""A verdict as text for a terminal, and as JSON:

    {"schema": 1, "verdict": "fault" | "no-fault" | "inconclusive",
     "faults": [{"code": "token-denominator", "title": "", "rules": ["GA101"], "reason": "with its numbers"}],
     "missing": [{"fact": "", "how": ""}], "notes": [""], "limits": {"equal": 1e-12, "different": 1e-08},
     "measured": {"variable": {"counts": [10, 90], "shares": [0.5, 0.5], "B/C": {"error": 1.35, "ratio": 1.62,
                  "cosine": 0.56, "worst": {"name": "head.weight", "share": 1.23}}, ...}, "uniform": {...}, ...},
     "ranked": {...} | null}

An experiment that could not run has ``verdict: inconclusive``, and ``refused`` and ``trace`` in the place of numbers.
"""

from collections.abc import Iterator
from typing import Any

from firstfault.prove.experiments.signature import Measured, number, weights
from firstfault.prove.experiments.verdict import Verdict

_BOLD, _RED, _GREEN, _YELLOW, _DIM, _RESET = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[2m", "\x1b[0m"
_WORDS = {"fault": ("Fault proven", _RED), "no-fault": ("No fault", _GREEN), "inconclusive": ("Inconclusive", _YELLOW)}


def to_text(verdict: Verdict, colour: bool) -> str:
    """The verdict first, then the numbers it rests on, then how they were measured."""

    def paint(text: str, style: str) -> str:
        return f"{style}{text}{_RESET}" if colour else text

    word, style = _WORDS[verdict.verdict]
    lines = [paint(word, _BOLD + style) + f": {_headline(verdict)}"]
    for fault in verdict.faults:
        lines += [
            "",
            paint(fault.title, _BOLD) + (f" ({', '.join(fault.rules)})" if fault.rules else ""),
            f"  {fault.reason}",
        ]
    for missing in verdict.missing:
        lines += ["", f"Open: {missing.fact}", f"  {missing.how}"]
    lines += ["", *_legs(verdict), *_micro_batches(verdict.measured["variable"]), ""]
    lines += [paint(each, _DIM) for each in (*verdict.notes, *_method(verdict))]
    return "\n".join(lines) + "\n"


def _headline(verdict: Verdict) -> str:
    if verdict.verdict == "fault":
        return ", ".join(dict.fromkeys(fault.code for fault in verdict.faults))
    if verdict.verdict == "inconclusive":
        return "the experiment ran and leaves something open"
    against = "the stated objective" if verdict.measured["objective"] else "all samples at once"
    return f"the accumulated gradient equals that of {against}"


def _legs(verdict: Verdict) -> Iterator[str]:
    rows = list(_rows(verdict))
    first, worst = max(len(row[0]) for row in rows), max(len(row[4]) for row in rows)
    head = ("", "error", "ratio", "cosine", "most of it in (share of the norm)")
    for row in (head, *rows):
        yield f"{row[0]:<{first}}  {row[1]:>9}  {row[2]:>8}  {row[3]:>8}  {row[4]:<{worst}}".rstrip()


def _rows(verdict: Verdict) -> Iterator[tuple[str, str, str, str, str]]:
    for name, data in (("batch(n)", verdict.measured["variable"]), ("control", verdict.measured["uniform"])):
        for legs in ("A/C", "B/C", "B/A"):
            if data and data[legs] and not (legs == "B/A" and data["B/C"]):
                yield _row(f"{name}: {legs[0]} against {legs[2]}", data[legs])
    if verdict.measured["batchnorm"]:
        yield _row("BatchNorm in training mode: B against A", verdict.measured["batchnorm"]["pair"])
    if verdict.ranked:
        for name, data in (("batch(n)", verdict.ranked["variable"]), ("control", verdict.ranked["uniform"])):
            if data:
                yield _row(f"{name}: {verdict.measured['ranks']} ranks against C", data)


def _row(name: str, pair: Measured) -> tuple[str, str, str, str, str]:
    worst = f"{pair['worst']['name']} {number(pair['worst']['share'])}" if pair["worst"] else ""
    return name, number(pair["error"]), number(pair["ratio"]), number(pair["cosine"]), worst


def _micro_batches(data: Measured) -> Iterator[str]:
    if data["shares"] is None or data["counts"] is None:
        return
    each = weights(data) or []
    yield ""
    yield "micro-batch   targets     share  weight of a target"
    held = iter(each)
    for place, (count, share) in enumerate(zip(data["counts"], data["shares"], strict=True), 1):
        weight = f"{next(held):.6g}" if count else "-"
        yield f"{place:>11}  {count:>8g}  {share:>8.4f}  {weight}"


def _method(verdict: Verdict) -> Iterator[str]:
    measured, limits = verdict.measured, verdict.limits
    size = measured["samples"] // measured["micro_batches"]
    yield (
        f"A: {measured['samples']} samples at once. B: {measured['micro_batches']} micro-batches of {size}."
        + (f" C: the gradient of {measured['objective']}." if measured["objective"] else "")
    )
    yield (
        f"Relative errors of the whole gradient in {measured['precision']}: up to {limits.equal:.1e} is rounding, from "
        f"{limits.different:.1e} on is not. torch {measured['torch']}, Python {measured['python']}."
    )


def to_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "schema": 1,
        "verdict": verdict.verdict,
        "faults": [{**each._asdict(), "rules": list(each.rules)} for each in verdict.faults],
        "missing": [each._asdict() for each in verdict.missing],
        "notes": verdict.notes,
        "limits": {"equal": verdict.limits.equal, "different": verdict.limits.different},
        "measured": {name: value for name, value in verdict.measured.items() if name != "kind"},
        "ranked": verdict.ranked and {name: verdict.ranked[name] for name in ("variable", "uniform")},
    }
