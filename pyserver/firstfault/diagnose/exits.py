"""What exit codes, signals and torchrun's table tell: weaker than any message of a process itself."""

from firstfault.diagnose.evidence import NOBODY, Case, Choice, only_exit, reporting
from firstfault.diagnose.failures import Failure
from firstfault.diagnose.ranks import Owner
from firstfault.library import Library
from firstfault.logs.log import Row


def left_early(case: Case) -> Choice | None:
    """A rank that ended by itself while the others went on: by an exit code of its own, or without any error."""
    spoke = reporting(case.failures)
    if any(each.role == "either" and each.raised is not None for each in case.failures):
        return None
    chosen = [row for row in case.log.rows if row.exitcode > 1 and row.rank not in spoke]
    if len(chosen) == 1 and spoke:
        row = chosen[0]
        return _row_choice(row, case.library, f"Rank {row.rank} ended by itself with exit code {row.exitcode}.")
    absent = sorted(case.ranks.known - set(case.ranks.rows) - spoke)
    if case.log.rows and len(absent) == 1 and spoke and len({row.table for row in case.log.rows}) == 1:
        return _absent_choice(absent[0], case)
    return _terminated_from_outside(case)


def _absent_choice(rank: int, case: Case) -> Choice:
    """The table lists only ranks that failed: the one that it leaves out ended with exit code 0."""
    last = case.ranks.last_line(rank)
    lines = (last,) if last is not None else case.failures[0].lines[:1]
    owner = Owner(rank, "inferred", None)
    values = {"rank": str(rank), "exitcode": "0"}
    failure = Failure(case.library.signatures["early-exit"], "initiating", values, owner, lines, None, None, None, True)
    reason = f"Rank {rank} is the only one that torchrun does not list as failed: it ended with exit code 0."
    return Choice(failure, owner, False, reason, established=last is not None)


def _terminated_from_outside(case: Case) -> Choice | None:
    """A rank that got SIGTERM although its agent sent none to it: somebody else did."""
    for exit_ in case.log.exits:
        if exit_.code != -15 or exit_.pid in case.log.closed_pids:
            continue
        row = next((each for each in case.log.rows if each.pid == exit_.pid), None)
        own = next((each for each in case.failures if each.row is row and row is not None), None)
        if row is not None and own is not None:
            reason = f"Rank {row.rank} was ended by a SIGTERM that its agent did not send."
            lines = (*own.lines, exit_.at)
            return Choice(own._replace(role="either", lines=lines), own.owner, False, reason)
    return None


def died(case: Case) -> Choice | None:
    """A signal that nothing else explains: strong ones first, then an abort."""
    deaths = [each for each in case.failures if only_exit(each) and each.role in ("initiating", "either")]
    strong = [each for each in deaths if each.signature.id != "sigabrt"] or deaths
    if not strong:
        return None
    first = strong[0]
    same = {each.owner.rank for each in strong if each.signature.id == first.signature.id}
    if len(same) > 1 and same == case.ranks.known:
        return Choice(first, first.owner, True, "Every rank ended in the same way.")
    return Choice(first, first.owner, False, "Its exit code is the only one that no other rank's failure explains.")


def table(case: Case) -> Choice | None:
    """Only the launcher speaks of the failure: the earliest row that it did not end itself."""
    own = [row for row in case.log.rows if row.exitcode not in (0, -15) and row.pid not in case.log.closed_pids]
    reactive = {each.owner.rank for each in case.failures if each.raised is not None and each.role == "collateral"}
    unexplained = [row for row in own if row.rank not in reactive]
    if not unexplained:
        return _agent_exit(case) if not case.log.rows else None
    row = min(unexplained, key=lambda each: (each.time is None, each.time or "", not each.root))
    at_once = [each for each in unexplained if each.time in (row.time, None) and each.error is None]
    if len(at_once) > 1:
        reason = f"{len(at_once)} ranks ended within the same second; which was first the table cannot tell."
        choice = _row_choice(row, case.library, reason)
        values = {name: value for name, value in choice.failure.captures.items() if name in ("exitcode", "host")}
        return choice._replace(owner=NOBODY, failure=choice.failure._replace(captures=values))
    return _row_choice(row, case.library, f"Rank {row.rank} failed by itself, and its own output is not in the text.")


def _agent_exit(case: Case) -> Choice | None:
    """The agent's line about its first failing process, where its table is not in the text."""
    ends = [each for each in case.log.exits if each.code not in (0, -15) and each.pid not in case.log.closed_pids]
    failure = next((each for each in case.failures if ends and each.lines[0] is ends[0].at), None)
    if failure is None or len(ends) > 1 or any(each.raised and not _is_wrapper(each) for each in case.failures):
        return None
    local = ends[0].local_rank
    owner = case.ranks.of_local(local, failure.owner.host) if local is not None else failure.owner
    return Choice(failure, owner, False, "It is the process that the launcher saw fail first; its output is not here.")


def _is_wrapper(failure: Failure) -> bool:
    return failure.signature.id in ("child-failed", "unknown-failure")


def _row_choice(row: Row, library: Library, reason: str) -> Choice:
    """A row that no signature explains: an exit code of the user's own, or a failure whose text is lost."""
    signature = library.signatures["early-exit" if row.exitcode > 1 else "child-failed"]
    values = {"rank": str(row.rank), "exitcode": str(row.exitcode), "pid": str(row.pid or ""), "host": row.host or ""}
    lines = [line for line in row.lines if "exitcode" in line.text]
    lines += [line for line in row.lines if line.text.strip().startswith("rank ")]
    owner = Owner(row.rank, "inferred", row.host)
    failure = Failure(signature, "either", values, owner, tuple(lines), None, None, row, True)
    return Choice(failure, owner, False, reason)
