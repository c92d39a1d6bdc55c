"""The report: what came first, what only followed, and what is not known. The same values feed every output.

Shapes and meanings are those of ``schema: 1``; ``to_json`` prints them. Lines count from 1 and end at ``\\n`` only,
so that a number here is the number that ``grep -n`` prints.
"""

from typing import Any, Literal, NamedTuple

Verdict = Literal["established", "symptom-only", "no-failure"]
Rank = int | Literal["all"] | None
RankBasis = Literal["stated", "inferred"] | None


class Evidence(NamedTuple):
    """A line of the source, or a part of it, word for word after decoding."""

    file: str
    line: int
    text: str


class Frame(NamedTuple):
    file: str
    line: int
    function: str


class Initiating(NamedTuple):
    signature: str
    title: str
    rank: Rank
    rank_basis: RankBasis
    host: str | None
    time: str | None
    exception: str
    message: str
    frame: Frame | None
    reason: str
    evidence: tuple[Evidence, ...]


class Collateral(NamedTuple):
    signature: str
    ranks: tuple[int, ...]
    reason: str
    evidence: tuple[Evidence, ...]


class Suspect(NamedTuple):
    rank: int
    because: str


class Missing(NamedTuple):
    """One fact that the text does not hold, and the command that brings it."""

    fact: str
    how: str


class Attempt(NamedTuple):
    """An attempt before the one that is reported on, and what failed first in it; ``signature`` is None if nothing."""

    attempt: int
    signature: str | None
    title: str
    rank: Rank
    exception: str
    message: str
    evidence: tuple[Evidence, ...]


class Read(NamedTuple):
    """``skipped`` names what was not read, or not to its end, and why."""

    files: int
    lines: int
    bytes: int
    ranks: tuple[int, ...]
    seconds: float
    skipped: tuple[str, ...] = ()


class Report(NamedTuple):
    verdict: Verdict
    initiating: Initiating | None
    cause: str
    fix: tuple[str, ...]
    verify: str | None
    collateral: tuple[Collateral, ...]
    suspects: tuple[Suspect, ...]
    missing: tuple[Missing, ...]
    contradictions: tuple[str, ...]
    related: tuple[str, ...]
    read: Read
    earlier: tuple[Attempt, ...] = ()


def to_json(report: Report) -> dict[str, Any]:
    return {"schema": 1, **_plain(report)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value
