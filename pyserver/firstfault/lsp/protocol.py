"""The requests of our own and their shapes, defined once: the extension's ``protocol.ts`` is printed from this module.

Everything else that the server speaks is the Language Server Protocol. The shapes of a report repeat those of
``diagnose.report`` in the form that JSON gives them; a test holds the two together.
"""

from typing import Literal, TypedDict

DIAGNOSE = "firstfault/diagnose"
EXPLAIN = "firstfault/explain"

SECTION = "firstfault"  # of the settings, in the client's configuration
SOURCE = "firstfault"  # of the diagnostics, as the Problems list shows it
UNUSED_IGNORE = "unused-ignore"  # the code of a comment that silences nothing

Rank = int | Literal["all"]


class DiagnoseParams(TypedDict, total=False):
    """Either ``text`` with the ``name`` to cite it by, or ``paths`` of files and folders that are one job."""

    text: str
    name: str
    paths: list[str]
    workDoneToken: int | str


class ExplainParams(TypedDict):
    """``id`` is a failure's id, or a rule's code or name."""

    id: str


class ExplainResult(TypedDict):
    markdown: str


class Evidence(TypedDict):
    file: str
    line: int
    text: str


class Frame(TypedDict):
    file: str
    line: int
    function: str


class Initiating(TypedDict):
    signature: str
    title: str
    rank: Rank | None
    rank_basis: Literal["stated", "inferred"] | None
    host: str | None
    time: str | None
    exception: str
    message: str
    frame: Frame | None
    reason: str
    evidence: list[Evidence]


class Collateral(TypedDict):
    signature: str
    ranks: list[int]
    reason: str
    evidence: list[Evidence]


class Suspect(TypedDict):
    rank: int
    because: str


class Missing(TypedDict):
    fact: str
    how: str


class Attempt(TypedDict):
    attempt: int
    signature: str | None
    title: str
    rank: Rank | None
    exception: str
    message: str
    evidence: list[Evidence]


class Read(TypedDict):
    files: int
    lines: int
    bytes: int
    ranks: list[int]
    seconds: float
    skipped: list[str]


class Report(TypedDict):
    """What ``firstfault/diagnose`` answers."""

    schema: Literal[1]
    verdict: Literal["established", "symptom-only", "no-failure"]
    initiating: Initiating | None
    cause: str
    fix: list[str]
    verify: str | None
    collateral: list[Collateral]
    suspects: list[Suspect]
    missing: list[Missing]
    contradictions: list[str]
    related: list[str]
    read: Read
    earlier: list[Attempt]


class CheckSettings(TypedDict, total=False):
    enabled: bool
    disabledRules: list[str]
    select: list[str] | None
    exclude: list[str]
    severity: dict[str, str]
    variableLength: bool | None
    gradAccumulation: int | None


class Settings(TypedDict, total=False):
    """The part of the settings that the server reads: initializationOptions, and the section ``firstfault``."""

    check: CheckSettings
