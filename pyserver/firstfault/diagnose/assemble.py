"""From a decision to the report: the words of the signature, filled with the values of the text."""

from firstfault.diagnose.causality import Verdict
from firstfault.diagnose.evidence import DEATHS, Choice, named, same
from firstfault.diagnose.failures import Failure, script_of, user_frame
from firstfault.diagnose.ranks import Ranks
from firstfault.diagnose.report import Attempt, Collateral, Evidence, Frame, Initiating, Missing, Read, Report
from firstfault.library import Library, fill
from firstfault.logs.log import Line, Log

EVIDENCE_LENGTH = 600
EVIDENCE_OF_COLLATERAL = 4
EVIDENCE_AGAIN = 3
SAID_LENGTH = 100


def report_of(
    verdict: Verdict, choice: Choice, failures: list[Failure], log: Log, library: Library, ranks: Ranks
) -> Report:
    signature = choice.failure.signature
    values = _values(choice, log)
    established = _established(choice)
    missing = tuple(Missing(fill(each.fact, values), fill(each.how, values)) for each in signature.missing)
    missing = tuple(each for each in missing if each.fact)
    missing = (choice.missing or missing) + _joined_by_ray(choice, log)
    if not established and not missing:
        missing = (_default_missing(ranks),)
    return Report(
        verdict="established" if established else "symptom-only",
        initiating=_initiating(choice, values, failures, log),
        cause=fill(signature.cause, values).strip(),
        fix=tuple(filter(None, (fill(each, values) for each in signature.fix))),
        verify=(fill(signature.verify, values) or None) if signature.verify else None,
        collateral=_collateral(choice, failures, log),
        suspects=verdict.suspects,
        missing=() if established else missing,
        contradictions=verdict.contradictions,
        related=signature.related,
        read=read_of(log, ranks),
    )


def _established(choice: Choice) -> bool:
    """Does the text show the cause? A death in native code is explained where the frame that died is shown."""
    failure = choice.failure
    if choice.established is not None:
        return choice.established
    if failure.signature.id in DEATHS:
        block, origin = failure.block, failure.raised.origin if failure.raised else None
        return origin == "terminate" or (origin == "fatal" and block is not None and bool(block.frames))
    return failure.signature.establishes and failure.role == "initiating"


def no_failure(log: Log, library: Library, ranks: Ranks) -> Report:
    signature = library.signatures["no-failure"]
    return Report(
        "no-failure", None, fill(signature.cause, {}), (), None, (), (), (), (), (), read_of(log, ranks)
    )  # fmt: skip


def attempt_of(number: int, report: Report) -> Attempt:
    """In short, what an earlier attempt failed of."""
    first = report.initiating
    if first is None:
        return Attempt(number, None, "", None, "", "", ())
    return Attempt(
        number, first.signature, first.title, first.rank, first.exception, first.message, first.evidence[:1]
    )  # fmt: skip


def _initiating(choice: Choice, values: dict[str, str], failures: list[Failure], log: Log) -> Initiating:
    failure = choice.failure
    block = failure.block
    return Initiating(
        signature=failure.signature.id,
        title=failure.signature.title,
        rank="all" if choice.everywhere else choice.owner.rank,
        rank_basis="inferred" if choice.everywhere else choice.owner.basis,
        host=None if choice.everywhere else choice.owner.host,
        time=_time(failure),
        exception=block.type if block else "",
        message=_message(failure),
        frame=_frame(choice, failures),
        reason=choice.reason,
        evidence=_evidence((*failure.lines, *_said_again(choice, failures)), log),
    )


def _frame(choice: Choice, failures: list[Failure]) -> Frame | None:
    """The user's frame of the failure; of the exception that says the same where a native line says it first."""
    again = [each for each in failures if same(each, choice.failure) and each.owner.rank == choice.failure.owner.rank]
    for failure in (choice.failure, *again):
        frame = user_frame(failure.raised, failure.block) if failure.raised and failure.block else None
        if frame is not None:
            return frame
    return None


def _said_again(choice: Choice, failures: list[Failure]) -> list[Line]:
    """Where the same failure stands elsewhere in the text: on the same rank, or on any where it is not one rank's."""
    chosen = choice.failure
    again = [
        each
        for each in failures
        if each is not chosen
        and same(each, chosen)
        and (choice.everywhere or choice.owner.basis is None or each.owner.rank == choice.owner.rank or named(each))
    ]
    again.sort(key=lambda each: each.captures != chosen.captures)
    by_rank = {each.owner.rank if choice.everywhere else each.order: each for each in reversed(again)}
    return [each.lines[0] for each in reversed(list(by_rank.values())[-EVIDENCE_AGAIN:])]


def _time(failure: Failure) -> str | None:
    tags = failure.lines[0].tags
    return tags.time or tags.recorded or (failure.row.time if failure.row else None)


def _message(failure: Failure) -> str:
    if failure.block is None:
        return failure.lines[0].text.strip()[:EVIDENCE_LENGTH]
    return failure.block.message[: EVIDENCE_LENGTH * 2]


def _values(choice: Choice, log: Log) -> dict[str, str]:
    failure = choice.failure
    values = {name: value for name, value in failure.captures.items() if value}
    rank = choice.owner.rank
    if rank is not None and not choice.everywhere:
        values["rank"] = str(rank)
    elif choice.everywhere:
        values.pop("rank", None)
    if choice.owner.host:
        values.setdefault("host", choice.owner.host)
    if failure.block is not None:
        values.setdefault("exception", failure.block.type.rsplit(".", 1)[-1])
        values.setdefault("message", failure.block.message.split("\n", 1)[0])
    frame = user_frame(failure.raised, failure.block) if failure.raised and failure.block else None
    if frame is not None:
        values.update(file=frame.file, line=str(frame.line))
        values.update({"function": frame.function} if frame.function else {})
    elif failure.block is not None:
        values["unplaced"] = values["exception"]
    script = script_of(failure.raised) if failure.raised else None
    if script is not None:
        values["script"] = script
    return values


def _default_missing(ranks: Ranks) -> Missing:
    if not ranks.spoken_of:
        return Missing("What the process printed before this text", "python -X faulthandler ... 2>&1 | tee run.log")
    return Missing(
        "The output of the rank that failed first: the text shows only what followed.",
        "torchrun --redirects 3 --log-dir logs ...  # then diagnose the folder logs",
    )


def _joined_by_ray(choice: Choice, log: Log) -> tuple[Missing, ...]:
    """Ray prints a line that several workers wrote once, so that their ranks are lost."""
    if choice.owner.rank is not None or not any("x across cluster]" in line.raw for line in log.lines):
        return ()
    return (Missing("Which ranks printed what: Ray joined equal lines of several workers.", "export RAY_DEDUP_LOGS=0"),)


def _collateral(choice: Choice, failures: list[Failure], log: Log) -> tuple[Collateral, ...]:
    by_class: dict[str, list[Failure]] = {}
    for each in failures:
        if not _is_first(each, choice):
            by_class.setdefault(each.signature.id, []).append(each)
    return tuple(_group(name, own, choice, log) for name, own in by_class.items())


def _is_first(failure: Failure, choice: Choice) -> bool:
    """The chosen failure itself, or another line about it."""
    chosen = choice.failure
    if failure.lines[0] in chosen.lines:
        return True
    return failure.signature.id == chosen.signature.id and (
        choice.everywhere or (failure.owner.rank is not None and failure.owner.rank == choice.owner.rank)
    )


def _group(name: str, own: list[Failure], choice: Choice, log: Log) -> Collateral:
    ranks = tuple(sorted({each.owner.rank for each in own if each.owner.rank is not None}))
    lines = tuple(each.lines[0] for each in own[:EVIDENCE_OF_COLLATERAL])
    return Collateral(name, ranks, f"{_what(own[0])}: {_why_collateral(own, choice)}.", _evidence(lines, log))


def _what(failure: Failure) -> str:
    """Its title; of what no signature knows, its own words."""
    block = failure.block
    if failure.known or block is None:
        return failure.signature.title if failure.known else "An error that no signature knows"
    if not block.type:
        return "A traceback without its last line"
    said = ": ".join(filter(None, (block.type.rsplit(".", 1)[-1], block.message.split("\n", 1)[0])))
    return said if len(said) <= SAID_LENGTH else said[: SAID_LENGTH - 1] + "\u2026"


def _why_collateral(own: list[Failure], choice: Choice) -> str:
    chosen = choice.failure
    if own[0].role == "collateral":
        return "a consequence"
    if any(each in choice.tied for each in own):
        return "it may have come first as well"
    same_writer = own[0].owner.rank == chosen.owner.rank and own[0].lines[0].file == chosen.lines[0].file
    if own[0].order > chosen.order and (same_writer or own[0].role == "initiating"):
        return "later than the first failure"
    return "it can be a consequence" if own[0].role == "either" else "it does not explain the first failure"


def _evidence(lines: tuple[Line, ...], log: Log) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(log.files[line.file].name, line.number, line.raw[:EVIDENCE_LENGTH].rstrip())
        for line in dict.fromkeys(lines)
        if line.raw.strip()
    )


def read_of(log: Log, ranks: Ranks) -> Read:
    return Read(
        len(log.files),
        sum(file.lines for file in log.files),
        sum(file.bytes for file in log.files),
        tuple(sorted(ranks.known)),
        0.0,
        log.problems,
    )
