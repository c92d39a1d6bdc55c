"""Which failure came first, which only followed, and what the text does not tell. A small pipeline in plain steps.

The order of evidence: facts of hardware and scheduler; messages that name a culprit; the earliest failure that can
start a chain; failures that can be either; exit codes; torchrun's own table; silence. What is reactive never wins.
Each step answers with a ``Choice`` that carries its reason, so that the report can say why.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from firstfault.diagnose.failures import Failure
from firstfault.diagnose.progress import STEP
from firstfault.diagnose.ranks import Owner, Ranks
from firstfault.diagnose.report import Suspect
from firstfault.library import Library
from firstfault.logs.log import Log, Row

PHYSICAL = frozenset(
    ("host-oom-kill", "k8s-oomkilled", "time-limit", "preempt", "node-fail", "scancel", "evicted", "node-lost")
)
# Shown by an exit code or a signal alone: weaker than any message of the process itself.
DEATHS = frozenset(("sigkill", "sigsegv", "sigbus", "sigabrt", "illegal-instr"))
AGENT_SAYS = frozenset(("closing-signal", "child-failed"))
FINGERPRINT = re.compile(
    r"Rank (?P<rank>\d+) is running (?:collective: )?CollectiveFingerPrint\((?P<print>[^()]{1,400})"
)
NUMBERS = re.compile(r"\d+")


class Choice(NamedTuple):
    """The failure that came first, on which rank, and why this is said.

    ``established`` overrules the signature where the log as a whole tells more or less than the one text.
    """

    failure: Failure
    owner: Owner
    everywhere: bool
    reason: str
    established: bool | None = None


class Verdict(NamedTuple):
    choice: Choice | None
    suspects: tuple[Suspect, ...]
    contradictions: tuple[str, ...]


Step = Callable[[list[Failure], Log, Ranks, Library], Choice | None]


def decide(failures: list[Failure], log: Log, library: Library, ranks: Ranks) -> Verdict:
    failures = _without_consequences(failures, log)
    for step in (
        _physical,
        _named,
        _earliest_initiating,
        _left_early,
        _either,
        _died,
        _table,
        _reactive_only,
        _cut_traceback,
    ):
        choice = step(failures, log, ranks, library)
        if choice is not None:
            return Verdict(choice, _suspects(choice, failures, ranks), _contradictions(choice, log))
    return Verdict(None, (), ())


# ------------------------------------------------------------------------------------------ steps


def _physical(failures: list[Failure], log: Log, ranks: Ranks, library: Library) -> Choice | None:
    facts = [each for each in failures if each.signature.id in PHYSICAL or each.signature.category == "hardware"]
    facts = [each for each in facts if each.role == "initiating"]
    if not facts:
        return None
    return Choice(
        facts[0], facts[0].owner, False, "A fact of the machine or the scheduler comes before any software symptom."
    )


def _named(failures: list[Failure], log: Log, ranks: Ranks, library: Library) -> Choice | None:
    """A message that names the culprit, or fingerprints of which one rank's differs from all others."""
    naming = [each for each in failures if NUMBERS.search(each.captures.get("culprit", ""))]
    if not naming:
        return _odd_fingerprint(failures)
    named = sorted({int(rank) for each in naming for rank in NUMBERS.findall(each.captures["culprit"])})
    if len(named) == 1:
        own = Owner(named[0], "stated", None)
        return Choice(naming[0], own, False, f"The message itself names rank {named[0]}.")
    most = max(naming, key=lambda each: len(NUMBERS.findall(each.captures["culprit"])))
    listed = ", ".join(map(str, named))
    return Choice(most, Owner(None, None, None), False, f"The messages name the ranks {listed}.")


def _odd_fingerprint(failures: list[Failure]) -> Choice | None:
    mismatches = [each for each in failures if each.block and FINGERPRINT.search(each.block.message)]
    prints: dict[int, str] = {}
    for failure in mismatches:
        assert failure.block is not None
        # Only what the writer says of itself: of its peer torch prints a fingerprint that it could not fill.
        found = FINGERPRINT.search(failure.block.message)
        if found:
            prints.setdefault(int(found["rank"]), found["print"])
    odd = _odd_one_out(prints)
    if odd is None:
        return None
    own = next((each for each in mismatches if each.owner.rank == odd), mismatches[0])
    reason = f"Rank {odd} runs another collective than all {len(prints) - 1} others that the messages show."
    return Choice(own, Owner(odd, "inferred", own.owner.host), False, reason)


def _odd_one_out(prints: dict[int, str]) -> int | None:
    if len(prints) < 3:
        return None
    alone = [rank for rank, own in prints.items() if list(prints.values()).count(own) == 1]
    return alone[0] if len(alone) == 1 else None


def _earliest_initiating(failures: list[Failure], log: Log, ranks: Ranks, library: Library) -> Choice | None:
    started = [each for each in failures if each.role == "initiating" and not _only_exit(each)]
    if not started:
        return None
    first = min(started, key=lambda each: _moment(each, ranks, started))
    alike = [each for each in started if _same(each, first)]
    source = _source_of_nan(alike, failures, log)
    if source is not None:
        reason = f"Rank {source.owner.rank} alone had a NaN while the others still had numbers."
        return Choice(source, source.owner, False, reason)
    if _on_all_ranks(alike, failures, log, ranks):
        return Choice(first, first.owner, True, "The same failure stands on every rank that reports: a common cause.")
    if _only_observed(first):
        reason = "The watchdog of one rank saw it; which rank failed first is not in the text."
        return Choice(first, Owner(None, None, first.owner.host), False, reason)
    return Choice(first, first.owner, False, _why_first(first, started, failures))


def _source_of_nan(alike: list[Failure], failures: list[Failure], log: Log) -> Failure | None:
    """An all-reduce spreads a NaN to every rank: the source is the one that printed it while others printed numbers."""
    if alike[0].signature.category != "numerics-silent":
        return None
    nans = [each for each in failures if each.signature.id == "loss-nan" and each.owner.rank is not None]
    if not nans:
        return None
    first = nans[0].owner.rank
    others = {each.owner.rank: each.order for each in reversed(nans) if each.owner.rank != first}
    finite_after = any(
        line.order > nans[0].order
        and line.tags.rank not in (None, first)
        and line.order < others.get(line.tags.rank, line.order + 1)
        and STEP.search(line.text)
        for line in log.lines
    )
    if others and not finite_after:
        return None
    return next((each for each in alike if each.owner.rank == first), None)


def _only_observed(failure: Failure) -> bool:
    """An asynchronous fault that only a watchdog thread reports, with no exception of any rank beside it."""
    source = failure.lines[0].tags.source or ""
    return failure.block is None and source.startswith("ProcessGroup") and not failure.signature.establishes


def _left_early(failures: list[Failure], log: Log, ranks: Ranks, library: Library) -> Choice | None:
    """A rank that ended by itself while the others went on: by an exit code of its own, or without any error."""
    reporting = _reporting(failures)
    if any(each.role == "either" and each.raised is not None for each in failures):
        return None
    chosen = [row for row in log.rows if row.exitcode > 1 and row.rank not in reporting]
    if len(chosen) == 1 and reporting:
        row = chosen[0]
        return _row_choice(row, library, f"Rank {row.rank} ended by itself with exit code {row.exitcode}.")
    absent = sorted(ranks.known - set(ranks.rows) - reporting)
    if log.rows and len(absent) == 1 and reporting and len({row.table for row in log.rows}) == 1:
        return _absent_choice(absent[0], failures, log, ranks, library)
    return _terminated_from_outside(failures, log)


def _absent_choice(rank: int, failures: list[Failure], log: Log, ranks: Ranks, library: Library) -> Choice:
    """The table lists only ranks that failed: the one that it leaves out ended with exit code 0."""
    last = ranks.last_line(rank)
    lines = (last,) if last is not None else failures[0].lines[:1]
    owner = Owner(rank, "inferred", None)
    values = {"rank": str(rank), "exitcode": "0"}
    failure = Failure(library.signatures["early-exit"], "initiating", values, owner, lines, None, None, None, True)
    reason = f"Rank {rank} is the only one that torchrun does not list as failed: it ended with exit code 0."
    return Choice(failure, owner, False, reason, established=last is not None)


def _terminated_from_outside(failures: list[Failure], log: Log) -> Choice | None:
    """A rank that got SIGTERM although its agent sent none to it: somebody else did."""
    for exit_ in log.exits:
        if exit_.code != -15 or exit_.pid in log.closed_pids:
            continue
        row = next((each for each in log.rows if each.pid == exit_.pid), None)
        own = next((each for each in failures if each.row is row and row is not None), None)
        if row is not None and own is not None:
            reason = f"Rank {row.rank} was ended by a SIGTERM that its agent did not send."
            return Choice(own._replace(role="either"), own.owner, False, reason)
    return None


def _either(failures: list[Failure], log: Log, ranks: Ranks, library: Library) -> Choice | None:
    either = [each for each in failures if each.role == "either" and not _only_exit(each) and not _cut_off(each)]
    if not either:
        return None
    died = [each for each in either if each.signature.id in DEATHS and each.raised and each.owner.rank is not None]
    if died and {each.owner.rank for each in either} == {died[0].owner.rank}:
        return Choice(died[0], died[0].owner, False, f"Rank {died[0].owner.rank} alone died; the others lost it.")
    waiting = _reporting(failures)
    silent = sorted(ranks.known - waiting)
    if len(silent) == 1 and len(waiting) >= 1:
        reason = f"All other ranks report that they waited; rank {silent[0]} alone printed no failure."
        return Choice(either[0], Owner(silent[0], "inferred", None), False, reason)
    if len({each.owner.rank for each in either}) == 1 and len(ranks.known) <= 1 and either[0].block is None:
        return Choice(
            either[0], Owner(None, None, None), False, "This rank only reports it; another one may have caused it."
        )
    return Choice(
        either[0],
        Owner(None, None, None),
        False,
        "It is the first failure in the text, but it can be a consequence too.",
    )


def _died(failures: list[Failure], log: Log, ranks: Ranks, library: Library) -> Choice | None:
    """A signal that nothing else explains: strong ones first, then an abort."""
    deaths = [each for each in failures if _only_exit(each) and each.role in ("initiating", "either")]
    strong = [each for each in deaths if each.signature.id != "sigabrt"] or deaths
    if not strong:
        return None
    first = strong[0]
    same = {each.owner.rank for each in strong if each.signature.id == first.signature.id}
    if len(same) > 1 and same == ranks.known:
        return Choice(first, first.owner, True, "Every rank ended in the same way.")
    return Choice(first, first.owner, False, "Its exit code is the only one that no other rank's failure explains.")


def _table(failures: list[Failure], log: Log, ranks: Ranks, library: Library) -> Choice | None:
    """Only the launcher speaks of the failure: the earliest row that it did not end itself."""
    own = [row for row in log.rows if row.exitcode not in (0, -15) and row.pid not in log.closed_pids]
    reactive = {each.owner.rank for each in failures if each.raised is not None and each.role == "collateral"}
    unexplained = [row for row in own if row.rank not in reactive]
    if len({row.table for row in log.rows}) > 1 and not unexplained:
        return None
    if not unexplained:
        return None
    row = min(unexplained, key=lambda each: (each.time or "", not each.root))
    return _row_choice(row, library, f"Rank {row.rank} failed by itself, and its own output is not in the text.")


def _reactive_only(failures: list[Failure], log: Log, ranks: Ranks, library: Library) -> Choice | None:
    follows = [each for each in failures if each.role == "collateral"]
    if not follows:
        return None
    shown = [each for each in follows if each.raised is not None and each.signature.id != "child-failed"] or follows
    first = shown[0]
    reporting = _reporting(failures)
    silent = sorted(ranks.known - reporting)
    if len(silent) == 1 and reporting:
        reason = f"Rank {silent[0]} alone printed no failure, while the others lost their connection."
        return Choice(first, Owner(silent[0], "inferred", None), False, reason)
    return Choice(first, Owner(None, None, None), False, "Only consequences are in the text; what caused them is not.")


def _cut_traceback(failures: list[Failure], log: Log, ranks: Ranks, library: Library) -> Choice | None:
    """Frames whose exception is not in the text any more."""
    cut = [each for each in failures if _cut_off(each)]
    if not cut:
        return None
    return Choice(cut[-1], cut[-1].owner, False, "The text ends before the line that names the exception.")


# ------------------------------------------------------------------------------------------ evidence


def _cut_off(failure: Failure) -> bool:
    return failure.block is not None and not failure.block.type


def _without_consequences(failures: list[Failure], log: Log) -> list[Failure]:
    """Exit codes that the same rank's own failure explains, and processes that the agent ended, start nothing."""
    spoke = _reporting(failures)
    kept = []
    for failure in failures:
        pid = int(failure.captures.get("pid") or 0) if _only_exit(failure) else 0
        if _only_exit(failure) and (failure.owner.rank in spoke or pid in log.closed_pids):
            failure = failure._replace(role="collateral")
        kept.append(failure)
    return kept


def _reporting(failures: list[Failure]) -> set[int]:
    """Ranks that printed a failure of their own; what the launcher says of them does not count."""
    own = [each for each in failures if not _only_exit(each) and each.signature.id not in AGENT_SAYS]
    return {each.owner.rank for each in own if each.owner.rank is not None}


def _only_exit(failure: Failure) -> bool:
    return (
        failure.raised is None
        and failure.signature.id in DEATHS | {"closing-signal"}
        and (failure.row is not None or "exitcode" in failure.lines[0].text)
    )


def _moment(failure: Failure, ranks: Ranks, started: list[Failure]) -> tuple[str, int]:
    """Time where the agent recorded one for each of the ranks that compete, else the order of lines."""
    times = {}
    for each in started:
        row = ranks.rows.get(each.owner.rank) if each.owner.rank is not None else None
        times[id(each)] = row.time if row is not None and row.error is not None else None
    if all(times.values()):
        return times[id(failure)] or "", failure.order
    return "", failure.order


def _same(one: Failure, other: Failure) -> bool:
    if one.signature.id != other.signature.id:
        return False
    return one.known or (one.block is not None and other.block is not None and one.block.type == other.block.type)


def _on_all_ranks(alike: list[Failure], failures: list[Failure], log: Log, ranks: Ranks) -> bool:
    owners = {each.owner.rank for each in alike if each.owner.rank is not None}
    if len(owners) > 1:
        return owners >= {
            each.owner.rank for each in failures if each.raised is not None and each.owner.rank is not None
        }
    if _ended_alike(log):
        return True
    nameless = [each for each in alike if each.owner.rank is None]
    return len(nameless) > 1 and len(nameless) >= len(ranks.rows) > 1


def _ended_alike(log: Log) -> bool:
    """Every rank died by the same signal, whatever of it was printed."""
    codes = {row.exitcode for row in log.rows}
    return len(log.rows) > 1 and len(codes) == 1 and min(codes) < -1 and codes != {-15}


def _why_first(first: Failure, started: list[Failure], failures: list[Failure]) -> str:
    others = [each for each in started if not _same(each, first)]
    if others:
        return "It is the earliest of the failures that can start a chain."
    if any(each.role != "initiating" for each in failures):
        return "It is the only failure in the text that does not follow from another one."
    return "It is the only failure in the text."


def _row_choice(row: Row, library: Library, reason: str) -> Choice:
    """A row that no signature explains: an exit code of the user's own, or a failure whose text is lost."""
    signature = library.signatures["early-exit" if row.exitcode > 1 else "child-failed"]
    values = {"rank": str(row.rank), "exitcode": str(row.exitcode), "pid": str(row.pid or ""), "host": row.host or ""}
    lines = [line for line in row.lines if "exitcode" in line.text]
    lines += [line for line in row.lines if line.text.strip().startswith("rank ")]
    owner = Owner(row.rank, "inferred", row.host)
    failure = Failure(signature, "either", values, owner, tuple(lines), None, None, row, True)
    return Choice(failure, owner, False, reason)


def _suspects(choice: Choice, failures: list[Failure], ranks: Ranks) -> tuple[Suspect, ...]:
    """Ranks that may have caused a symptom: those that did not report it."""
    named = NUMBERS.findall(choice.failure.captures.get("culprit", ""))
    if len(named) > 1:
        return tuple(Suspect(int(rank), "named by the message") for rank in named)
    if choice.failure.role == "initiating" and _only_observed(choice.failure) and choice.failure.owner.rank is not None:
        return (Suspect(choice.failure.owner.rank, "its watchdog reported the fault"),)
    if choice.everywhere or choice.failure.role == "initiating":
        return ()
    reporting = _reporting(failures)
    silent = sorted(ranks.known - reporting)
    if len(silent) > 4 or not reporting:
        return ()
    return tuple(Suspect(rank, "printed no failure of its own") for rank in silent)


def _contradictions(choice: Choice, log: Log) -> tuple[str, ...]:
    if choice.owner.rank is None or choice.everywhere:
        return ()
    wrong = [row for row in log.rows if row.root and row.rank != choice.owner.rank]
    tables = {row.table for row in log.rows}
    if not wrong or len(wrong) < len(tables):
        return ()
    return (
        f"torchrun's table calls rank {wrong[0].rank} the root cause; the evidence points to rank {choice.owner.rank}.",
    )
