"""Which rank a line belongs to, by what the text shows: prefixes, torchrun's table, pids, local ranks.

Local rank, global rank, host and pid are different things. A local rank is taken for a global one only where nothing
in the text speaks of a second node, and the answer is then marked as inferred.
"""

import re
from functools import cached_property
from typing import NamedTuple

from firstfault.diagnose.mapping import told_in
from firstfault.diagnose.report import RankBasis
from firstfault.logs.log import Line, Log, Raised
from firstfault.patterns import gated

LOG_RECORD = re.compile(r"error|fail|exception|critical|crash", re.IGNORECASE)
SPAWNED = gated(r"(?:-- Process|process) (?P<process>\d{1,6}) terminated", " terminated")


WRITER = re.compile(r"rank[ :=]{0,2}(?P<rank>\d{1,5})\b(?! has| is|,)", re.IGNORECASE)
WORLD = re.compile(r"\bworld[ _-]?size\W{1,3}(\d{1,5})\b|\brank:? \d{1,5}(?: of |/)(\d{1,5})\b", re.IGNORECASE)
CHANNEL = gated(r"\b(\d{1,5})\[(\d{1,3})\] -> (\d{1,5})\[(\d{1,3})\]", "] -> ")
LARGEST_WORLD = 4096
# Words of a job of several processes.
OF_RANKS = gated(
    r"\branks?(?:\b|\d)|_rank\b|torchrun|torch[./\\]distributed|\bNCCL\b|ProcessGroup|\bworld[ _-]?size\b"
    r"|\bdeepspeed\b|\bmpi(?:run|exec)\b|\bsrun\b|\b(?:DDP|FSDP)\b|DistributedDataParallel|\bmulti[_-]gpu\b",
    flags=re.IGNORECASE,
)
DEATH_CODES = {"Segmentation fault": -11, "Bus error": -7, "Aborted": -6, "Illegal instruction": -4, "Floating": -8}


class Owner(NamedTuple):
    rank: int | None
    basis: RankBasis
    host: str | None


class Ranks:
    """What one log tells of its ranks. ``known`` holds every rank that the text names as a process of the job."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.by_pid = {row.pid: row for row in log.rows if row.pid is not None}
        self.rows = {row.rank: row for row in log.rows}
        self.told = told_in(log)
        self.local = self._local_ranks()
        self.by_device = _ranks_of_devices(log)
        named = {stream.rank for stream in log.streams if stream.rank is not None}
        self.known = {*self.rows, *named, *self.told.ranks, *_told(log)}
        self.one_node = self._one_node()
        hosts = {*(row.host for row in log.rows), *(stream.host for stream in log.streams)} - {None}
        self.one_host = self.one_node and len(hosts) == 1
        self._position = {line.order: at for at, line in enumerate(log.lines)}

    @cached_property
    def spoken_of(self) -> bool:
        """Does anything in the text speak of ranks? Of a single process no report should."""
        return bool(self.known or self.log.exits) or any(OF_RANKS.search(line.raw) for line in self.log.lines)

    def of_line(self, line: Line, captured: dict[str, str] | None = None) -> Owner:
        """The rank that printed the line."""
        stream = self.log.streams[line.stream]
        rank = line.tags.rank if line.tags.rank is not None else stream.rank
        if rank is not None:
            return Owner(rank, "stated", line.tags.host or self._host(rank))
        if line.stream in self.told.streams:
            rank = self.told.streams[line.stream]
            return Owner(rank, "inferred", line.tags.host or self._host(rank))
        if line.tags.local_rank is not None:
            return self.of_local(line.tags.local_rank, line.tags.host)
        captured = captured or {}
        if captured.get("rank", "").isdigit():
            return Owner(int(captured["rank"]), "stated", line.tags.host or self._host(int(captured["rank"])))
        for pid in (captured.get("pid"), line.tags.pid):
            if pid is not None and str(pid).isdigit() and int(pid) in self.by_pid:
                row = self.by_pid[int(pid)]
                return Owner(row.rank, "inferred", row.host)
            if pid is not None and str(pid).isdigit():
                told = self.told.of_pid(line.tags.host, int(pid))
                if told is not None:
                    return Owner(told, "inferred", line.tags.host or self._host(told))
        if captured.get("only_rank"):
            return Owner(int(captured["only_rank"]), "inferred", line.tags.host)
        if line.tags.device is not None and line.tags.device in self.by_device:
            return Owner(self.by_device[line.tags.device], "inferred", line.tags.host)
        if captured.get("local_rank", "").isdigit():
            return self.of_local(int(captured["local_rank"]), line.tags.host)
        return Owner(None, None, line.tags.host)

    def of_raised(self, raised: Raised) -> Owner:
        """The rank of an exception: its line's; else that of the log record that it stands below; else mp.spawn's."""
        owner = self.of_line(raised.blocks[-1].at)
        if owner.rank is not None:
            return owner
        first = min((line for block in raised.blocks for line in block.lines), key=lambda line: line.order)
        before = self.line_before(first)
        if before is not None and before.tags.rank is not None and LOG_RECORD.search(before.text):
            return Owner(before.tags.rank, "inferred", before.tags.host)
        for block in raised.blocks:
            found = SPAWNED.search(block.message)
            if found and "spawn" in block.type:
                return Owner(int(found["process"]), "inferred", owner.host)
        return self._of_death(raised) or owner

    def _of_death(self, raised: Raised) -> Owner | None:
        """A process that died by a signal printed no rank; its exit code in the table can tell it."""
        code = _signal_code(raised)
        rows = [row for row in self.log.rows if row.exitcode == code]
        if code is not None and len(rows) == 1:
            return Owner(rows[0].rank, "inferred", rows[0].host)
        exits = [each for each in self.log.exits if each.code == code and each.local_rank is not None]
        if code is not None and not rows and len(exits) == 1:
            return self.of_local(exits[0].local_rank or 0, None)
        return None

    def line_before(self, line: Line) -> Line | None:
        at = self._position.get(line.order)
        return self.log.lines[at - 1] if at else None

    def last_line(self, rank: int) -> Line | None:
        """The last line that the rank printed, by its prefix or because the line names its writer first."""
        own = [line for line in self.log.lines if line.tags.rank == rank or _writer(line) == rank]
        return own[-1] if own else None

    def of_local(self, local_rank: int, host: str | None) -> Owner:
        ranks = self.local.get((host, local_rank)) or self.local.get((None, local_rank), set())
        if len(ranks) == 1:
            rank = next(iter(ranks))
            return Owner(rank, "inferred", host or self._host(rank))
        if not ranks and self.one_node:
            return Owner(local_rank, "inferred", host)
        return Owner(None, None, host)

    def _host(self, rank: int) -> str | None:
        return self.rows[rank].host if rank in self.rows else None

    def _local_ranks(self) -> dict[tuple[str | None, int], set[int]]:
        found: dict[tuple[str | None, int], set[int]] = {}
        for row in self.log.rows:
            if row.local_rank is not None:
                found.setdefault((row.host, row.local_rank), set()).add(row.rank)
                found.setdefault((None, row.local_rank), set()).add(row.rank)
        for stream in self.log.streams:
            if stream.rank is not None and stream.local_rank is not None:
                found.setdefault((stream.host, stream.local_rank), set()).add(stream.rank)
                found.setdefault((None, stream.local_rank), set()).add(stream.rank)
        for (host, local_rank), rank in self.told.local.items():
            found.setdefault((host, local_rank), set()).add(rank)
            found.setdefault((None, local_rank), set()).add(rank)
        return found

    def _one_node(self) -> bool:
        """True where nothing in the text speaks of a second node."""
        pairs = [(row.rank, row.local_rank) for row in self.log.rows]
        pairs += [(each.rank, each.local_rank) for each in self.log.streams if each.rank is not None]
        pairs += self.told.pairs
        hosts = {row.host for row in self.log.rows if row.host}
        return len(hosts) <= 1 and all(local is None or rank == local for rank, local in pairs)


def _ranks_of_devices(log: Log) -> dict[int, int]:
    """NCCL's channel lines pair ranks with devices; only pairs that are the same everywhere count."""
    pairs: dict[int, set[int]] = {}
    for line in log.lines:
        if line.tags.device is not None and (found := CHANNEL.search(line.text)):
            pairs.setdefault(int(found[2]), set()).add(int(found[1]))
            pairs.setdefault(int(found[4]), set()).add(int(found[3]))
    return {device: next(iter(ranks)) for device, ranks in pairs.items() if len(ranks) == 1}


def _writer(line: Line) -> int | None:
    found = WRITER.match(line.text)
    return int(found["rank"]) if found else None


def _told(log: Log) -> set[int]:
    """Ranks that exist because lines name them as their writer, or because the text tells the world size."""
    told = {rank for line in log.lines if (rank := _writer(line)) is not None}
    sizes = {int(found[1] or found[2]) for line in log.lines if (found := WORLD.search(line.text))}
    if len(sizes) == 1 and max(sizes) <= LARGEST_WORLD:
        told |= set(range(max(sizes)))
    return told


def _signal_code(raised: Raised) -> int | None:
    if raised.origin == "terminate":
        return -6
    if raised.origin != "fatal":
        return None
    message = raised.blocks[-1].message
    return next((code for name, code in DEATH_CODES.items() if name in message), None)
