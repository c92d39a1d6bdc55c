"""What the watchdogs' counters tell: a rank that never issued, or never completed, what the others waited for.

From torch 2.3 on each watchdog prints the work that failed and the last works that its rank had enqueued and completed;
before that only the number of the work. A rank whose last enqueued work is below the one that timed out on its peers
did not take part in it: its host side was elsewhere. One that has enqueued it but completed less than its peers is
stuck on its device. Counters are compared within one process group; groups with point-to-point works are left out,
since these count differently on every rank; and a rank that ran ahead proves nothing.
"""

import re
from collections import Counter
from typing import Literal, NamedTuple

from firstfault.diagnose.evidence import Case, Choice
from firstfault.diagnose.ranks import Owner
from firstfault.diagnose.report import Suspect
from firstfault.logs.log import Line, Log
from firstfault.patterns import gated

Side = Literal["host", "device"]

STATUS = gated(
    r"[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d{1,12})\b(?:, last completed (?:NCCL )?work: "
    r"(?P<completed>-?\d{1,12})\b)?",
    "ast enqueued",
)
TIMED_OUT = gated(
    r"(?:detected by watchdog at work(?: sequence id)?|Timeout at NCCL work): (?P<work>\d{1,12})\b",
    "detected by watchdog at work",
    "Timeout at NCCL work",
)
WORK = gated(r"WorkNCCL\(SeqNum=(?P<work>\d{1,12}), OpType=(?P<operation>\w{1,40})", "WorkNCCL(SeqNum=")
# Pairs of sends and receives are issued as one coalesced work.
POINT_TO_POINT = frozenset(("SEND", "RECV", "COALESCED"))
GROUP = re.compile(r"\[PG (?:ID \d+ PG GUID (?P<guid>\d+)|(?P<id>\d+))(?:\((?P<name>\w{1,80})\))?\S{0,80} Rank \d+\]")
# Counters above this are garbage that some versions print before the first collective.
SANE = 2**31
DEFAULT_GROUP = "0"
FEWEST_WITNESSES = 2


class Lag(NamedTuple):
    """A rank behind its peers in one group: what it had done, and what they had, or waited for."""

    side: Side
    own: int
    peers: int
    group: str

    def __str__(self) -> str:
        own = f"{'no collective' if self.own < 0 else f'{self.own} collectives'}{self.group and f' of {self.group}'}"
        if self.side == "host":
            return f"had enqueued {own} while others waited for number {self.peers}: its host side is behind"
        return f"had completed {own} while others had completed {self.peers}: its device side is behind"


class Group:
    """What the watchdogs of one process group print, by rank."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.enqueued: dict[int, int] = {}
        self.completed: dict[int, int] = {}
        self.waited: dict[int, int] = {}
        self.point_to_point = False

    def add(self, rank: int, line: Line) -> None:
        if status := STATUS.search(line.text):
            _keep_latest(self.enqueued, rank, status["enqueued"])
            _keep_latest(self.completed, rank, status["completed"])
        if found := TIMED_OUT.search(line.text) or WORK.search(line.text):
            self.waited.setdefault(rank, int(found["work"]))

    def lags(self) -> dict[int, Lag]:
        """Most of the witnesses wait for one work; only then a rank that did less is behind."""
        if self.point_to_point or not self.waited:
            return {}
        work, _ = Counter(self.waited.values()).most_common(1)[0]
        witnesses = [rank for rank, each in self.waited.items() if each == work]
        found = {rank: Lag("host", own, work, self.name) for rank, own in self.enqueued.items() if own < work}
        for rank in {*self.waited, *self.completed} - set(found) - set(witnesses):
            own = self.completed.get(rank, self.waited.get(rank, work) - 1)
            if own < work - 1:
                found[rank] = Lag("device", own, work - 1, self.name)
        return found if FEWEST_WITNESSES <= len(witnesses) > len(found) else {}


def behind(case: Case) -> Choice | None:
    """The one rank that stayed behind; several of them are suspects only."""
    waited = next((each for each in case.failures if each.signature.id == "watchdog-timeout"), None)
    lagging = laggards(case.log)
    if waited is None or len(lagging) != 1:
        return None
    rank, lag = next(iter(lagging.items()))
    lines = (*waited.lines, *_lines_of(rank, case.log))
    return Choice(waited._replace(lines=lines), Owner(rank, "inferred", None), False, f"Rank {rank} {lag}.")


def suspects(log: Log) -> tuple[Suspect, ...]:
    return tuple(Suspect(rank, str(lag)) for rank, lag in sorted(laggards(log).items()))


def laggards(log: Log) -> dict[int, Lag]:
    """The ranks that stayed behind, in the innermost group where there are any: the others wait for it."""
    groups: dict[str, Group] = {}
    for line in log.lines:
        rank = line.tags.rank
        if rank is None or not (STATUS.search(line.text) or WORK.search(line.text)):
            continue
        name, work = GROUP.search(line.text), WORK.search(line.text)
        apart = work is not None and work["operation"] in POINT_TO_POINT
        group = groups.setdefault(_key(name), Group((name and name["name"]) or ""))
        group.point_to_point |= apart and name is not None
        if not apart:
            group.add(rank, line)
    inner_first = sorted(groups, key=lambda name: (name == DEFAULT_GROUP, len(groups[name].waited)))
    return next((lags for name in inner_first if (lags := groups[name].lags())), {})


def _key(found: "re.Match[str] | None") -> str:
    """The group's global name; lines without one are of the default group."""
    return (found["guid"] or f"id {found['id']}") if found else DEFAULT_GROUP


def _keep_latest(counts: dict[int, int], rank: int, text: str | None) -> None:
    if text is not None and int(text) < SANE:
        counts[rank] = max(int(text), counts.get(rank, -1))


def _lines_of(rank: int, log: Log) -> list[Line]:
    own = [line for line in log.lines if line.tags.rank == rank]
    return [line for line in own if STATUS.search(line.text) or WORK.search(line.text)][:1]
