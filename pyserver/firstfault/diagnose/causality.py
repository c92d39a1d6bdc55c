"""Which failure came first, which only followed, and what the text does not tell. A small pipeline in plain steps.

The order of evidence: facts of hardware and scheduler; messages that name a culprit; the earliest failure that can
start a chain; failures that can be either; exit codes; torchrun's own table; silence. What is reactive never wins.
Each step answers with a ``Choice`` that carries its reason, so that the report can say why.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from firstfault.diagnose import exits
from firstfault.diagnose.evidence import (
    COUNTED,
    DEATHS,
    NOBODY,
    PAIRWISE,
    TIMEOUTS,
    Case,
    Choice,
    contradictions_of,
    cut_off,
    listed,
    named,
    on_all_ranks,
    only_exit,
    only_observed,
    reporting,
    same,
    silent_ranks,
    suspects_of,
    why_first,
    without_consequences,
)
from firstfault.diagnose.failures import Failure
from firstfault.diagnose.match import spoken_of
from firstfault.diagnose.progress import STEP, reported_errors
from firstfault.diagnose.ranks import Owner
from firstfault.diagnose.report import Missing, Suspect
from firstfault.logs.log import Line
from firstfault.patterns import gated

PHYSICAL = frozenset(
    ("host-oom-kill", "k8s-oomkilled", "time-limit", "preempt", "node-fail", "scancel", "evicted", "node-lost")
)
FINGERPRINT = gated(
    r"Rank (?P<rank>\d+) is running (?:collective: )?CollectiveFingerPrint\((?P<print>[^()]{1,400})",
    "CollectiveFingerPrint(",
)
COUNT = gated(r"(?P<at>\d{1,15}) ?(?:/|of) ?(?P<of>\d{1,15})\b")
TRAINS = gated(r"\b(?:loss|epoch|step|iter|lr)\b", flags=re.IGNORECASE)
WORK = gated(
    r"\b(?:tokeni[sz]|index|scan|build|sav|load|map|filter|process|prepar|preprocess|convert|download|copy|shard|extract"
    r"|cach|pack|writ|read|evaluat|generat|merg)\w*",
    flags=re.IGNORECASE,
)
MANY_RANKS = 2
QUOTED = "The text quotes it as documentation does; it does not show a run that failed so."
OUTPUT = Missing("The output of a run that failed.", "python train.py 2>&1 | tee run.log")
WHICH_FIRST = Missing(
    "Which of these ranks failed first: the time of each error. Error files tell it.",
    "from torch.distributed.elastic.multiprocessing.errors import record  # then @record above main()",
)

Step = Callable[[Case], Choice | None]


class Verdict(NamedTuple):
    choice: Choice | None
    suspects: tuple[Suspect, ...]
    contradictions: tuple[str, ...]


def decide(case: Case) -> Verdict:
    case = case._replace(failures=without_consequences(case))
    if _has_waits(case):
        from firstfault.diagnose.waits import by_start

        case = case._replace(failures=by_start(case.failures, case))
    for step in STEPS:
        choice = step(case)
        if choice is not None:
            choice = _if_quoted(_with_its_wait(choice, case), case)
            return Verdict(choice, _suspects(choice, case), contradictions_of(choice, case.log))
    return Verdict(None, (), ())


# What few texts need is imported where it is needed: a small diagnosis is over in a few starts of the interpreter.


def _has_waits(case: Case) -> bool:
    return any(each.signature.id in TIMEOUTS for each in case.failures)


def _with_its_wait(choice: Choice, case: Case) -> Choice:
    if choice.failure.signature.id not in TIMEOUTS:
        return choice
    from firstfault.diagnose.waits import reason_of

    return choice._replace(reason=choice.reason + reason_of(choice.failure, case))


def _if_quoted(choice: Choice, case: Case) -> Choice:
    from firstfault.diagnose.quoted import has_blocks, in_documentation

    if not has_blocks(case.log) or not in_documentation(choice.failure, case.log):
        return choice
    return choice._replace(established=False, reason=QUOTED, missing=(OUTPUT,))


def _suspects(choice: Choice, case: Case) -> tuple[Suspect, ...]:
    suspects = suspects_of(choice, case)
    if choice.failure.signature.id not in TIMEOUTS:
        return suspects
    from firstfault.diagnose.sequence import suspects as behind

    return behind(case.log) or suspects


def _behind(case: Case) -> Choice | None:
    if not _has_waits(case):
        return None
    from firstfault.diagnose.sequence import behind

    return behind(case)


def _before_all_waits_ended(failures: list[Failure], case: Case) -> list[Failure]:
    if not _has_waits(case):
        return failures
    from firstfault.diagnose.waits import is_after

    return [each for each in failures if not is_after(each, case)]


def _earliest(failures: list[Failure], case: Case) -> tuple[tuple[Failure, ...], str | None]:
    """Those of which none surely came later, and how one is known to be the first."""
    if len(failures) == 1:
        return tuple(failures), None
    from firstfault.diagnose.earliest import earliest

    return earliest(failures, case)


def _not_after(facts: list[Failure], others: list[Failure], case: Case) -> list[Failure]:
    if not facts or not others:
        return facts
    from firstfault.diagnose.earliest import surely_before

    return [each for each in facts if not any(surely_before(other, each, case) for other in others)]


def _physical(case: Case) -> Choice | None:
    facts = [each for each in case.failures if each.signature.id in PHYSICAL or each.signature.category == "hardware"]
    facts = [each for each in facts if each.role == "initiating"]
    software = [each for each in case.failures if each.role == "initiating" and each not in facts]
    facts = _not_after(facts, software, case)
    if not facts:
        return None
    (first, *_), _ = _earliest(facts, case)
    reason = "A fact of the machine or the scheduler comes before any software symptom."
    return Choice(first, first.owner, False, reason)


def _named(case: Case) -> Choice | None:
    """A message that names the culprit, or fingerprints of which one rank's differs from all others."""
    naming = [each for each in case.failures if named(each)]
    if not naming:
        return _odd_fingerprint(case.failures)
    culprits = sorted({rank for each in naming for rank in named(each)})
    if len(culprits) == 1:
        own = Owner(culprits[0], "stated", None)
        return Choice(naming[0], own, False, f"The message itself names rank {culprits[0]}.")
    most = max(naming, key=lambda each: len(named(each)))
    return Choice(most, NOBODY, False, f"The messages name the ranks {', '.join(map(str, culprits))}.")


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
    own = own._replace(lines=(*own.lines, *(each.lines[0] for each in mismatches[:3])))
    reason = f"Rank {odd} runs another collective than all {len(prints) - 1} others that the messages show."
    return Choice(own, Owner(odd, "inferred", own.owner.host), False, reason)


def _odd_one_out(prints: dict[int, str]) -> int | None:
    if len(prints) < 3:
        return None
    alone = [rank for rank, own in prints.items() if list(prints.values()).count(own) == 1]
    return alone[0] if len(alone) == 1 else None


def _earliest_initiating(case: Case) -> Choice | None:
    started = [each for each in case.failures if each.role == "initiating" and not only_exit(each)]
    started = _before_all_waits_ended(started, case)
    if not started:
        return None
    tied, how = _earliest(started, case)
    first = tied[0]
    alike = [each for each in started if same(each, first)]
    source = _source_of_nan(alike, case)
    if source is not None:
        reason = f"Rank {source.owner.rank} alone had a NaN while the others still had numbers."
        return Choice(source, source.owner, False, reason)
    if on_all_ranks(alike, case):
        return Choice(first, first.owner, True, "The same failure stands on every rank that reports: a common cause.")
    reason = how or why_first(first, started, case.failures)
    return _of_nobody(first) or _tied(tied) or Choice(first, first.owner, False, reason)


def _tied(failures: tuple[Failure, ...]) -> Choice | None:
    """Several ranks failed, and neither times nor lines tell which was the first."""
    first = failures[0]
    ranks = sorted({each.owner.rank for each in failures if each.owner.rank is not None})
    if len(failures) < MANY_RANKS or (len(ranks) == 1 and all(each.owner.rank is not None for each in failures)):
        return None
    who = f"Ranks {listed(ranks)}" if len(ranks) > 1 else "Several processes"
    if all(same(each, first) for each in failures):
        reason = f"{who} failed alike; the text tells no times by which one of them was the first."
        return Choice(first, NOBODY, False, reason, tied=failures)
    reason = f"{who} failed differently, and the text tells no times by which one of them was the first."
    return Choice(first, NOBODY, False, reason, established=False, tied=failures, missing=(WHICH_FIRST,))


def _of_nobody(first: Failure) -> Choice | None:
    """The failures whose reporter is not the rank at fault."""
    if first.signature.id in PAIRWISE:
        reason = "Ranks disagree, and the text does not tell which of them is the odd one."
        return Choice(first, NOBODY, False, reason)
    if first.signature.id in COUNTED:
        reason = "The rank that reports it waited for the group; which process is amiss is not in the text."
        return Choice(first, NOBODY, False, reason)
    if only_observed(first):
        reason = "The watchdog of one rank saw it; which rank failed first is not in the text."
        return Choice(first, Owner(None, None, first.owner.host), False, reason)
    return None


def _source_of_nan(alike: list[Failure], case: Case) -> Failure | None:
    """An all-reduce spreads a NaN to every rank: the source is the one that printed it while others printed numbers."""
    if alike[0].signature.category != "numerics-silent":
        return None
    nans = [each for each in case.failures if each.signature.id == "loss-nan" and each.owner.rank is not None]
    if not nans:
        return None
    first = nans[0].owner.rank
    others = {each.owner.rank: each.order for each in reversed(nans) if each.owner.rank != first}
    finite_after = any(
        line.order > nans[0].order
        and line.tags.rank not in (None, first)
        and line.order < others.get(line.tags.rank, line.order + 1)
        and STEP.search(line.text)
        for line in case.log.lines
    )
    if not (finite_after if others else _finite_elsewhere(case, first)):
        return None
    return next((each for each in alike if each.owner.rank == first), None)


def _finite_elsewhere(case: Case, nan_rank: int | None) -> bool:
    return any(line.tags.rank not in (None, nan_rank) and STEP.search(line.text) for line in case.log.lines)


def _busy(case: Case) -> Choice | None:
    """Others timed out while one rank still counted through work of its own, which is no training step."""
    timeouts = [each for each in case.failures if each.signature.id in TIMEOUTS and not only_exit(each)]
    if not timeouts:
        return None
    spoke = reporting(case.failures)
    before = [line for line in case.log.lines if line.order < timeouts[0].order and line.tags.rank not in spoke]
    last = next((line for line in reversed(before) if line.text.strip()), None)
    if last is None or not _unfinished_work(last, before):
        return None
    silent = silent_ranks(case)
    owner = Owner(silent[0], "inferred", None) if len(silent) == 1 else NOBODY
    values = {**timeouts[0].captures, **({"rank": str(silent[0])} if len(silent) == 1 else {})}
    lines = (last, *timeouts[0].lines)
    signature = case.library.signatures["timeout-rank-busy"]
    failure = timeouts[0]._replace(signature=signature, role="initiating", lines=lines, captures=values, owner=owner)
    return Choice(failure, owner, False, "While the others waited, one rank still counted through work of its own.")


def _unfinished_work(line: Line, before: list[Line]) -> bool:
    """A count below its end, of something that is no step of training; the word for it may stand just above."""
    found = COUNT.search(line.text)
    if found is None or int(found["at"]) >= int(found["of"]) or TRAINS.search(line.text):
        return False
    near = " ".join(each.text for each in before[-3:])
    return bool(WORK.search(near))


def _either(case: Case) -> Choice | None:
    either = [each for each in case.failures if each.role == "either" and not only_exit(each) and not cut_off(each)]
    if not either:
        return None
    died = [each for each in either if each.signature.id in DEATHS and each.raised and each.owner.rank is not None]
    if died and {each.owner.rank for each in either} == {died[0].owner.rank}:
        return Choice(died[0], died[0].owner, False, f"Rank {died[0].owner.rank} alone died; the others lost it.")
    silent = silent_ranks(case)
    if len(silent) == 1 and reporting(case.failures):
        reason = f"All other ranks report that they waited; rank {silent[0]} alone printed no failure."
        return Choice(either[0], Owner(silent[0], "inferred", None), False, reason)
    if len({each.owner.rank for each in either}) == 1 and len(case.ranks.known) <= 1 and either[0].block is None:
        return Choice(either[0], NOBODY, False, "This rank only reports it; another one may have caused it.")
    return Choice(either[0], NOBODY, False, "It is the first failure in the text, but it can be a consequence too.")


def _reactive_only(case: Case) -> Choice | None:
    follows = [each for each in case.failures if each.role == "collateral"]
    if not follows:
        return None
    shown = [each for each in follows if each.raised is not None and each.signature.id != "child-failed"] or follows
    first = shown[0]
    spoke = reporting(case.failures)
    silent = silent_ranks(case)
    if len(silent) == 1 and spoke:
        reason = f"Rank {silent[0]} alone printed no failure, while the others lost their connection."
        return Choice(first, Owner(silent[0], "inferred", None), False, reason)
    return Choice(first, NOBODY, False, "Only consequences are in the text; what caused them is not.")


def _cut_traceback(case: Case) -> Choice | None:
    """Frames whose exception is not in the text any more."""
    cut = [each for each in case.failures if cut_off(each)]
    if not cut:
        return None
    owner = cut[-1].owner if len(case.ranks.known) < MANY_RANKS else NOBODY
    return Choice(cut[-1], owner, False, "The text ends before the line that names the exception.")


def _unexplained(case: Case) -> Choice | None:
    """Nothing known, but the text reports an error that nobody got over: unknown is more honest than an all-clear."""
    lines = reported_errors(case.log)
    if not lines:
        return None
    places = {id(line): at for at, line in enumerate(case.log.lines)}
    for line in lines:
        found = spoken_of(places[id(line)], case.log, case.library)
        if found is not None:
            owner = case.ranks.of_line(line, found.captures)
            failure = Failure(
                found.signature, found.signature.role, found.captures, owner, (line,), None, None, None, True
            )
            return Choice(failure, owner, False, "It is the only error in the text that is known.")
    signature = case.library.signatures["unknown-failure"]
    failure = Failure(signature, "either", {}, NOBODY, tuple(lines[:3]), None, None, None, False)
    return Choice(failure, NOBODY, False, "The text reports an error here, and no progress follows it.")


STEPS: tuple[Step, ...] = (
    _physical,
    _named,
    _earliest_initiating,
    exits.left_early,
    _busy,
    _behind,
    _either,
    exits.died,
    exits.table,
    _reactive_only,
    _cut_traceback,
    _unexplained,
)
