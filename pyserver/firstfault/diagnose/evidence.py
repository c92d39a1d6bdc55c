"""What speaks for and against a failure being the first: predicates that the steps of ``causality`` decide with."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from firstfault.diagnose.failures import Failure
from firstfault.diagnose.ranks import Owner, Ranks
from firstfault.diagnose.report import Missing, Suspect
from firstfault.library import Library
from firstfault.logs.log import Log
from firstfault.patterns import gated

# Shown by an exit code or a signal alone: weaker than any message of the process itself.
DEATHS = frozenset(("sigkill", "sigsegv", "sigbus", "sigabrt", "illegal-instr"))
AGENT_SAYS = frozenset(("closing-signal", "child-failed"))
NUMBERS = re.compile(r"\d+")
COMPLAINT = gated(
    r"\[[EF](?:\d{3,4} [\d:.]+)? ProcessGroup|[Ff]ailed (?:to|on) ", "ProcessGroup", "ailed to ", "ailed on "
)
# Two ranks disagree in these; the message does not tell which of them is the odd one.
PAIRWISE = frozenset(("collective-mismatch", "ddp-model-diff", "collective-size-mismatch"))
# Who waits for the group counts who came; the one that waits is not at fault.
COUNTED = frozenset(("world-size",))
STEP_ENDED = "step-cancel"
PAIR = ("first", "other", "unlike")
MANY = 4
TIMEOUTS = frozenset(("watchdog-timeout", "gloo-timeout"))
NOBODY = Owner(None, None, None)
MAY_BE_FIRST, LAUNCHER_SAW = "may have failed first", "; torchrun's table puts it first"


class Case(NamedTuple):
    """All that is decided from: the failures in reading order, the log, its ranks, the library."""

    failures: list[Failure]
    log: Log
    ranks: Ranks
    library: Library


class Choice(NamedTuple):
    """The failure that came first, on which rank, and why this is said.

    ``established`` overrules the signature where the log as a whole tells more or less than the one text; ``tied`` are
    the failures of which one came first, and ``missing`` is the fact that would tell.
    """

    failure: Failure
    owner: Owner
    everywhere: bool
    reason: str
    established: bool | None = None
    tied: tuple[Failure, ...] = ()
    missing: tuple[Missing, ...] = ()


def without_consequences(case: Case) -> list[Failure]:
    """Exit codes that the same rank's own failure explains, and what the agent or srun ended, start nothing."""
    spoke = reporting(case.failures)
    ended = min((each.order for each in case.failures if each.signature.id == STEP_ENDED), default=None)
    kept = []
    for failure in case.failures:
        pid = int(failure.captures.get("pid") or 0) if only_exit(failure) else 0
        if only_exit(failure) and (failure.owner.rank in spoke or pid in case.log.closed_pids):
            failure = failure._replace(role="collateral")
        if ended is not None and failure.order > ended and _srun_killed(failure):
            failure = failure._replace(role="collateral")
        kept.append(failure)
    return kept


def _srun_killed(failure: Failure) -> bool:
    """srun kills the tasks that are left when it has ended a step."""
    return failure.block is None and failure.signature.id == "sigkill" and "srun: " in failure.lines[0].raw


def reporting(failures: list[Failure]) -> set[int]:
    """Ranks that printed a failure of their own; what the launcher says of them does not count."""
    own = [each for each in failures if not only_exit(each) and each.signature.id not in AGENT_SAYS]
    return {each.owner.rank for each in own if each.owner.rank is not None}


def silent_ranks(case: Case) -> list[int]:
    """Ranks that exist and report no failure; what a watchdog marks as an error counts as a report."""
    complaining = {
        line.tags.rank
        for line in case.log.lines
        if (line.tags.source or "").startswith(("ProcessGroup", "TCPStore")) and COMPLAINT.search(line.raw)
    }
    return sorted(case.ranks.known - reporting(case.failures) - complaining)


def only_exit(failure: Failure) -> bool:
    return (
        failure.raised is None
        and failure.signature.id in DEATHS | {"closing-signal"}
        and (failure.row is not None or "exitcode" in failure.lines[0].text)
    )


def cut_off(failure: Failure) -> bool:
    return failure.block is not None and not failure.block.type


def named(failure: Failure) -> list[int]:
    """The ranks that the message names as culprits."""
    return [int(rank) for rank in NUMBERS.findall(failure.captures.get("culprit", ""))]


def listed(ranks: Iterable[int]) -> str:
    *first, last = map(str, ranks)
    return f"{', '.join(first)} and {last}" if first else last


def same(one: Failure, other: Failure) -> bool:
    if one.signature.id != other.signature.id:
        return False
    return one.known or (one.block is not None and other.block is not None and one.block.type == other.block.type)


def on_all_ranks(alike: list[Failure], case: Case) -> bool:
    """The same failure on every rank that raised anything: a common cause, not one rank's fault."""
    owners = {each.owner.rank for each in alike if each.owner.rank is not None}
    if len(owners) > 1:
        return owners >= {
            each.owner.rank for each in case.failures if each.raised is not None and each.owner.rank is not None
        }
    if _ended_alike(case.log):
        return True
    nameless = [each for each in alike if each.owner.rank is None]
    return len(nameless) > 1 and len(nameless) >= len(case.ranks.rows) > 1


def _ended_alike(log: Log) -> bool:
    """Every rank died by the same signal, whatever of it was printed."""
    codes = {row.exitcode for row in log.rows}
    return len(log.rows) > 1 and len(codes) == 1 and min(codes) < -1 and codes != {-15}


def only_observed(failure: Failure) -> bool:
    """An asynchronous fault that only a watchdog thread reports, with no exception of any rank beside it."""
    source = failure.lines[0].tags.source or ""
    return failure.block is None and source.startswith("ProcessGroup") and not failure.signature.establishes


def why_first(first: Failure, started: list[Failure], failures: list[Failure]) -> str:
    others = [each for each in started if not same(each, first)]
    if others:
        return "It is the earliest of the failures that can start a chain."
    if any(each.role != "initiating" for each in failures):
        return "It is the only failure in the text that does not follow from another one."
    return "It is the only failure in the text."


def suspects_of(choice: Choice, case: Case) -> tuple[Suspect, ...]:
    """Ranks that may have caused a symptom: those that did not report it."""
    if choice.tied:
        ranks = sorted({each.owner.rank for each in choice.tied if each.owner.rank is not None})
        ended = {row.rank for row in case.log.rows if row.root}
        return tuple(Suspect(rank, MAY_BE_FIRST + LAUNCHER_SAW * (rank in ended)) for rank in ranks)
    culprits = named(choice.failure)
    if len(culprits) > 1:
        return tuple(Suspect(rank, "named by the message") for rank in culprits)
    if choice.failure.role == "initiating" and only_observed(choice.failure) and choice.failure.owner.rank is not None:
        return (Suspect(choice.failure.owner.rank, "its watchdog reported the fault"),)
    if choice.failure.signature.id in PAIRWISE and not choice.everywhere:
        pair = sorted({int(choice.failure.captures[name]) for name in PAIR if name in choice.failure.captures})
        return tuple(Suspect(rank, "one of the ranks that disagree") for rank in pair if choice.owner.rank is None)
    if choice.everywhere or choice.failure.role == "initiating":
        return ()
    silent = silent_ranks(case)
    if choice.owner.rank is not None and choice.owner.rank not in silent:
        return ()
    if len(silent) > MANY or not reporting(case.failures):
        return ()
    return tuple(Suspect(rank, "printed no failure of its own") for rank in silent)


def contradictions_of(choice: Choice, log: Log) -> tuple[str, ...]:
    if choice.owner.rank is None or choice.everywhere:
        return ()
    wrong = [row for row in log.rows if row.root and row.rank != choice.owner.rank]
    tables = {row.table for row in log.rows}
    if not wrong or len(wrong) < len(tables):
        return ()
    return (
        f"torchrun's table calls rank {wrong[0].rank} the root cause; the evidence points to rank {choice.owner.rank}.",
    )
