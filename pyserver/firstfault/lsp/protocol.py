"""The requests of our own and their shapes, defined once: the extension's ``protocol.ts`` is printed from this module.

Everything else that the server speaks is the Language Server Protocol. The shapes of a report repeat those of
``diagnose.report`` in the form that JSON gives them; a test holds the two together.
"""

from typing import Any, Literal, TypedDict

DIAGNOSE = "firstfault/diagnose"
EXPLAIN = "firstfault/explain"
MEASURE = "firstfault/measure"
PROVE_FIX = "firstfault/proveFix"
SCAFFOLD = "firstfault/scaffold"
PROVE_FIX_COMMAND = (
    "firstfault.proveFix"  # the client's own, named by code actions where it says `proveFix` at the start
)

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


class MeasureParams(TypedDict, total=False):
    """``command`` is run in ``cwd`` with exactly the environment ``env``; without one, with the server's own.

    The verdicts are shown in the scripts that the command names, and in the document ``uri``.
    """

    command: list[str]
    cwd: str
    env: dict[str, str]
    uri: str
    windows: int
    timeout: float
    workDoneToken: int | str


class MicroBatch(TypedDict):
    rank: int
    number: int
    loss: str
    reduction: str
    file: str
    line: int
    targets: int
    weight: float | None
    share: float | None
    right_share: float | None
    dropped: bool


class Window(TypedDict):
    """``state`` says why it does not count, where it does not; ``remarks`` are sentences for people."""

    index: int
    complete: bool
    micro_batches: list[MicroBatch]
    ratio: float | None
    mass: float | None
    ledger: list[dict[str, Any]]
    gradient: dict[str, Any] | None
    values: dict[str, Any]
    state: str
    remarks: list[str]


class MeasuredRank(TypedDict):
    rank: int
    pid: int
    python: str
    torch: str


class Verdict(TypedDict):
    code: str
    name: str
    state: Literal["proven", "refuted", "not measured"]
    message: str
    file: str | None
    line: int | None
    suspected: bool


class Note(TypedDict):
    probe: str
    why: str


class Measurement(TypedDict):
    """What ``firstfault/measure`` answers: the JSON of ``firstfault measure``, and what a page shows beside it.

    ``right`` names faults that were measured and refuted though nobody suspected them, ``picture`` is SVG, ``printed``
    the end of what the command printed.
    """

    schema: Literal[1]
    ended: str
    ranks: list[MeasuredRank]
    windows: list[Window]
    verdicts: list[Verdict]
    notes: list[Note]
    right: list[str]
    picture: str
    printed: str
    command: list[str]


class FixOf(TypedDict):
    """Names a fix: the argument of a code action's command, and a part of what ``firstfault/proveFix`` is given."""

    uri: str
    version: int
    code: str
    line: int
    title: str


class ProveFixParams(MeasureParams):
    """A command as for ``firstfault/measure``, and the fix. ``line`` is that of the finding, from 1."""

    fix: FixOf


class Compared(TypedDict):
    """One number of the run as it stands and of the run with the fix, beside what it should be."""

    what: str
    before: str
    after: str
    wanted: str
    right: bool


class TextPosition(TypedDict):
    line: int
    character: int


class TextRange(TypedDict):
    start: TextPosition
    end: TextPosition


class TextEdit(TypedDict):
    range: TextRange
    newText: str


class FixProof(TypedDict):
    """What ``firstfault/proveFix`` answers. ``after`` is null where the fault itself was not proven; ``edits`` are the
    fix, for ``version`` of the document."""

    proved: bool
    why: str
    code: str
    name: str
    title: str
    compared: list[Compared]
    before: Measurement
    after: Measurement | None
    version: int
    edits: list[TextEdit]


class ScaffoldParams(TypedDict):
    uri: str


class ScaffoldResult(TypedDict):
    text: str
    name: str


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
