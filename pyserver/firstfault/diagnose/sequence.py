"""What the watchdogs' counters tell: a rank that never issued the collective in which the others timed out.

From torch 2.3 on each watchdog prints the work that failed and the last one that its rank had enqueued. A rank whose
last enqueued work is below the work that timed out on its peers did not take part in it: it was elsewhere. Counters
are compared within one process group only, and a rank that ran ahead proves nothing.
"""

import re

from firstfault.diagnose.evidence import Case, Choice
from firstfault.diagnose.ranks import Owner
from firstfault.diagnose.report import Suspect
from firstfault.logs.log import Line, Log
from firstfault.patterns import gated

STATUS = gated(r"[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>\d{1,12})\b", "ast enqueued")
TIMED_OUT = gated(
    r"(?:detected by watchdog at work(?: sequence id)?|Timeout at NCCL work): (?P<work>\d{1,12})\b",
    "detected by watchdog at work",
    "Timeout at NCCL work",
)
GROUP = re.compile(r"\[PG (?:ID \d+ PG GUID (?P<guid>\d+)|(?P<id>\d+))\S{0,80}(?: \(\w+\))? Rank \d+\]")
# Counters above this are garbage that some versions print before the first collective.
SANE = 2**31
DEFAULT_GROUP = "0"
FEWEST_WITNESSES = 2


def behind(case: Case) -> Choice | None:
    """The one rank that had not issued what the others waited for; several of them are suspects only."""
    waited = next((each for each in case.failures if each.signature.id == "watchdog-timeout"), None)
    lagging = laggards(case.log)
    if waited is None or len(lagging) != 1:
        return None
    rank, (enqueued, work) = next(iter(lagging.items()))
    reason = f"Rank {rank} had enqueued {enqueued} collectives while the others waited for number {work}."
    lines = (*waited.lines, *_lines_of(rank, case.log))
    return Choice(waited._replace(lines=lines), Owner(rank, "inferred", None), False, reason)


def suspects(log: Log) -> tuple[Suspect, ...]:
    return tuple(
        Suspect(rank, f"had enqueued {enqueued} collectives while others waited for number {work}")
        for rank, (enqueued, work) in sorted(laggards(log).items())
    )


def laggards(log: Log) -> dict[int, tuple[int, int]]:
    """For each rank that stayed behind: what it had enqueued, and the work that timed out on its peers."""
    enqueued: dict[str, dict[int, int]] = {}
    timed_out: dict[str, dict[int, int]] = {}
    for line in log.lines:
        status = STATUS.search(line.text)
        if status is None or line.tags.rank is None or int(status["enqueued"]) >= SANE:
            continue
        group = _group(line)
        own = enqueued.setdefault(group, {})
        own[line.tags.rank] = max(int(status["enqueued"]), own.get(line.tags.rank, 0))
        if found := TIMED_OUT.search(line.text):
            timed_out.setdefault(group, {})[line.tags.rank] = int(found["work"])
    found_in = [_laggards_in(enqueued[group], works) for group, works in timed_out.items()]
    return next((each for each in found_in if each), {})


def _laggards_in(enqueued: dict[int, int], works: dict[int, int]) -> dict[int, tuple[int, int]]:
    """Most of the witnesses agree on one work; only then a rank below it is behind."""
    work = max(set(works.values()), key=list(works.values()).count)
    witnesses = [rank for rank, each in works.items() if each == work]
    lagging = {rank: (count, work) for rank, count in enqueued.items() if count < work}
    return lagging if FEWEST_WITNESSES <= len(witnesses) > len(lagging) else {}


def _group(line: Line) -> str:
    """The group's global name; lines without one are of the default group."""
    found = GROUP.search(line.text)
    return (found["guid"] or f"id {found['id']}") if found else DEFAULT_GROUP


def _lines_of(rank: int, log: Log) -> list[Line]:
    return [line for line in log.lines if line.tags.rank == rank and STATUS.search(line.text)][:1]
