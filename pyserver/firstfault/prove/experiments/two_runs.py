"""Two measured runs side by side: A takes its samples at once, B in micro-batches. Values in, values out.

Their gradients are not compared with each other: nobody holds samples and dropout of two real runs equal. Each run is
compared with its own objective, inside one process, where both are equal; what could not be equalised is said.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from firstfault.prove.experiments.signature import number
from firstfault.prove.gradients import Gradient, gradient
from firstfault.prove.measured import Measured, Window
from firstfault.prove.weights import RATIO, Term, is_close, terms


class Proven(NamedTuple):
    code: str
    name: str
    message: str


class Side(NamedTuple):
    """One run: the first window that was measured in full, and the faults that the run proves."""

    name: str
    command: str
    ended: str
    micro_batches: int | None
    targets: int | None
    count_ratio: float | None  # of the targets of its micro-batches: 1 puts no denominator to the test
    ratio: float | None
    mass: float | None
    error: float | None  # of the gradient, against the objective of the same run
    off: bool
    proven: tuple[Proven, ...]


class Comparison(NamedTuple):
    verdict: str  # "fault", "no-fault" or "inconclusive"
    sides: tuple[Side, Side]
    missing: tuple[str, ...]
    unequal: tuple[str, ...]  # what the two runs do not have in common, or may not


def side(name: str, command: str, measured: Measured, proven: Iterable[Proven]) -> Side:
    window = next(iter(measured.regular or measured.complete), None)
    if window is None:
        return Side(name, command, measured.ended, None, None, None, None, None, None, False, tuple(proven))
    term, found = _main(window), gradient(window)
    return Side(
        name,
        command,
        measured.ended,
        window.length,
        term.targets if term else None,
        term.count_ratio if term else None,
        term.ratio if term else None,
        term.mass if term else None,
        found.error if found else None,
        _is_off(term, found),
        tuple(proven),
    )


def compare(a: Side, b: Side) -> Comparison:
    missing = tuple(_missing(a, b))
    word = "fault" if a.proven or b.proven else "inconclusive" if missing else "no-fault"
    return Comparison(word, (a, b), missing, tuple(_unequal(a, b)))


def _main(window: Window) -> Term | None:
    return max(terms(window), key=lambda term: len(term.rows), default=None)


def _is_off(term: Term | None, found: Gradient | None) -> bool:
    """Something differs, though no judge gives it a name."""
    weighed = term is not None and not term.one_by_one
    uneven = weighed and term is not None and (term.ratio > RATIO or not is_close(term.mass, 1.0, term.tolerance))
    return bool(uneven or (found is not None and found.differs and not found.only_scaled))


def _missing(a: Side, b: Side) -> Iterator[str]:
    for each in (a, b):
        if each.micro_batches is None:
            yield f"Run {each.name} closed no window that could be measured. {each.ended}"
        elif each.targets is None and each.error is None:
            yield f"Neither the targets nor the gradient of run {each.name} could be measured."
        elif each.off and not each.proven:
            yield f"Run {each.name} differs from its own objective, and no known fault fits."
    if b.micro_batches == 1:
        yield "Run B takes its window in one micro-batch: nothing is accumulated."
    elif b.count_ratio is not None and b.count_ratio == 1 and not b.proven:
        yield "Every micro-batch of B counts the same targets, so its denominator was not put to the test."


def _unequal(a: Side, b: Side) -> Iterator[str]:
    if a.targets is not None and b.targets is not None:
        if a.targets == b.targets:
            yield f"Samples: both windows count {a.targets} targets; that they hold the same samples is not known."
        else:
            yield f"Samples: the windows count {a.targets} and {b.targets} targets, so they hold different ones."
    elif a.micro_batches is not None and b.micro_batches is not None:
        yield "Samples: whether both windows hold the same ones is not known."
    yield "Dropout: as the scripts have it; each run draws its own masks."
    yield "Neither touches the verdict: each run is compared with its own objective. A probe has both equal."


# ------------------------------------------------------------------------------------------ on the screen

_WORDS = {"fault": "Fault proven", "no-fault": "No fault", "inconclusive": "Inconclusive"}


def to_text(comparison: Comparison) -> str:
    a, b = comparison.sides
    lines = [f"{_WORDS[comparison.verdict]}: {_headline(comparison)}"]
    proven = [f"{each.name}: {it.code} {it.name}: {it.message}" for each in comparison.sides for it in each.proven]
    for each in (*proven, *(f"Open: {each}" for each in comparison.missing)):
        lines += ["", each]
    lines += ["", f"{'':<38}{'A':>12}{'B':>12}"]
    for title, left, right in _table(a, b):
        lines.append(f"{title:<38}{left:>12}{right:>12}")
    lines += ["", *(f"{run.name}: {run.command}" for run in comparison.sides)]
    lines += ["Not equalised:", *(f"  {each}" for each in comparison.unequal)]
    return "\n".join(lines) + "\n"


def _headline(comparison: Comparison) -> str:
    a, b = comparison.sides
    if comparison.verdict == "inconclusive":
        return "the runs leave something open"
    if comparison.verdict == "no-fault":
        return "each run's gradient is that of its own objective"
    both = {each.code for each in a.proven} & {each.code for each in b.proven}
    where = "in A and B" if both else "in B" if b.proven else "in A"
    return f"{', '.join(dict.fromkeys(each.code for each in (*b.proven, *a.proven)))} {where}"


def _table(a: Side, b: Side) -> Iterator[tuple[str, str, str]]:
    rows: list[tuple[str, float | None, float | None]] = [
        ("ratio of target weights (1 is right)", a.ratio, b.ratio),
        ("weight x targets (1 is right)", a.mass, b.mass),
        ("error against its own objective", a.error, b.error),
    ]
    yield "micro-batches of a window", _whole(a.micro_batches), _whole(b.micro_batches)
    yield "targets of the window", _whole(a.targets), _whole(b.targets)
    for title, left, right in rows:
        yield title, _shown(left), _shown(right)


def _shown(value: float | None) -> str:
    return "-" if value is None else number(value)


def _whole(value: int | None) -> str:
    return "-" if value is None else str(value)


def to_json(comparison: Comparison) -> dict[str, Any]:
    def of(each: Side) -> dict[str, Any]:
        return {**each._asdict(), "proven": [proven._asdict() for proven in each.proven]}

    return {
        "schema": 1,
        "verdict": comparison.verdict,
        "runs": [of(each) for each in comparison.sides],
        "missing": list(comparison.missing),
        "unequal": list(comparison.unequal),
    }
