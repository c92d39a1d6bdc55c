"""What the measured numbers say of each fault: proven, refuted, or not measured and why.

A judge is a function in ``prove/judges/``; looking is finding. It reads ``Measured`` and yields verdicts by code. A
code that no judge speaks of is not measured.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Literal, NamedTuple

from firstfault.prove.measured import Measured

State = Literal["proven", "refuted", "not measured"]


class Verdict(NamedTuple):
    code: str
    state: State
    message: str
    file: str | None = None
    line: int | None = None
    also: tuple[str, ...] = ()  # codes that the same numbers settle, where a finding has one of them
    quiet: bool = False  # may be meant so: only said where a finding names it


Judge = Callable[[Measured], Iterable[Verdict]]


def judge(function: Judge) -> Judge:
    """Mark a function of ``prove/judges/`` that yields verdicts."""
    function.is_judge = True  # type: ignore[attr-defined]
    return function


def verdicts(measured: Measured) -> list[Verdict]:
    """All that can be said, by code; where two judges speak of one code, the one that knows more comes first."""
    order: dict[State, int] = {"proven": 0, "refuted": 1, "not measured": 2}
    found = [verdict for each in _judges() for verdict in each(measured)]
    if not any(part.micro_batches for window in measured.windows for part in window.parts):
        found = [each._replace(state="not measured", message="No backward ran.") for each in found]
    spoiled = [why for probe, why in measured.notes if probe == "boundaries"]
    if spoiled:  # where one window ends and the next begins is not known
        found = [each._replace(state="not measured", message=f"{spoiled[0].capitalize()}.") for each in found]
    return sorted(found, key=lambda each: (each.code, order[each.state]))


def verdict_for(code: str, found: Iterable[Verdict]) -> Verdict:
    """The verdict on one code; there is always one, if only why there is none."""
    fitting = [each for each in found if code == each.code or code in each.also]
    states: list[State] = ["proven", "refuted", "not measured"]
    for state in states:
        for each in fitting:
            if each.state == state:
                return each
    return Verdict(code, "not measured", "No probe measures this.")


@cache
def _judges() -> tuple[Judge, ...]:
    return tuple(_found())


def _found() -> Iterator[Judge]:
    from firstfault.prove import judges

    for module in pkgutil.iter_modules(judges.__path__):
        loaded = importlib.import_module(f"{judges.__name__}.{module.name}")
        functions = (each for each in vars(loaded).values() if getattr(each, "is_judge", False))
        yield from (each for each in functions if each.__module__ == loaded.__name__)
