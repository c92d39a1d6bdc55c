"""Which process has which rank, where lines say so that carry no rank of their own.

A process that prints ``RANK=5`` on a stream of its own has told the rank of that stream; NCCL tells the rank of a pid
in the largest communicator; and a torch log line may carry rank and pid together. What two lines tell differently
tells nothing.
"""

from collections.abc import Hashable, Iterable
from typing import NamedTuple, TypeVar

from firstfault.logs.log import Line, Log
from firstfault.patterns import gated

# Not LOCAL_RANK, NODE_RANK, GROUP_RANK.
RANK = gated(r"(?<![A-Za-z_])RANK ?[=:] ?['\"]?(?P<rank>\d{1,6})\b", "RANK=", "RANK =", "RANK:", "RANK :")
LOCAL_RANK = gated(r"(?<![A-Za-z_])LOCAL_RANK ?[=:] ?['\"]?(?P<rank>\d{1,5})\b", "LOCAL_RANK")
COMMUNICATOR = gated(r"\brank (?P<rank>\d{1,6}) nranks (?P<size>\d{1,6})\b", " nranks ")

Process = tuple[str | None, int]
Key = TypeVar("Key", bound=Hashable)


class Told(NamedTuple):
    """Ranks by the number of a stream, by (host, pid), by (host, local rank); and all pairs of rank and local rank."""

    streams: dict[int, int]
    pids: dict[Process, int]
    local: dict[Process, int]
    pairs: frozenset[tuple[int, int]]

    @property
    def ranks(self) -> set[int]:
        return {*self.streams.values(), *self.pids.values(), *self.local.values()}

    def of_pid(self, host: str | None, pid: int) -> int | None:
        """The pid alone is enough where one host has it."""
        if (host, pid) in self.pids:
            return self.pids[host, pid]
        found = {rank for (_, each), rank in self.pids.items() if each == pid}
        return next(iter(found)) if host is None and len(found) == 1 else None


def told_in(log: Log) -> Told:
    streams, local, pids = list[tuple[int, int]](), list[tuple[Process, int]](), list[tuple[Process, int]]()
    communicators = list[tuple[Process, int, int]]()
    for line in log.lines:
        tags = line.tags
        if found := RANK.search(line.text):
            streams.append((line.stream, int(found["rank"])))
            own = LOCAL_RANK.search(line.text)
            if own is not None or tags.local_rank is not None:
                number = int(own["rank"]) if own is not None else tags.local_rank or 0
                local.append(((tags.host, number), int(found["rank"])))
        if tags.pid is None:
            continue
        if tags.rank is not None and log.streams[line.stream].rank == tags.rank:
            pids.append(((tags.host, tags.pid), tags.rank))
        if found := COMMUNICATOR.search(line.text):
            communicators.append(((tags.host, tags.pid), int(found["rank"]), int(found["size"])))
    pairs = frozenset((rank, number) for (_, number), rank in local)
    return Told(_of_streams(streams, log), _agreed([*pids, *_of_world(communicators)]), _agreed(local), pairs)


def _of_streams(told: list[tuple[int, int]], log: Log) -> dict[int, int]:
    """Of a stream that may be several processes' only the ranks of many such files tell: each file another one."""
    agreed = _agreed(told)
    apart = {stream: rank for stream, rank in agreed.items() if _is_one_writer(_first(log, stream))}
    whole = {stream: rank for stream, rank in agreed.items() if stream not in apart and len(log.files) > 1}
    if len(whole) > 1 and len(set(whole.values())) == len(whole):
        apart.update(whole)
    return {stream: rank for stream, rank in apart.items() if log.streams[stream].rank is None}


def _first(log: Log, stream: int) -> Line:
    return next(line for line in log.lines if line.stream == stream)


def _is_one_writer(line: Line) -> bool:
    tags = line.tags
    if (tags.source or "").startswith("torch"):
        return False  # The launcher's agent, which may list the environment of its workers.
    return tags.local_rank is not None or tags.pid is not None or tags.label is not None


def _of_world(told: list[tuple[Process, int, int]]) -> list[tuple[Process, int]]:
    """The largest communicator is the world's, unless there are more processes than it has ranks."""
    world = max((size for _, _, size in told), default=0)
    if len({process for process, _, _ in told}) > world:
        return []
    return [(process, rank) for process, rank, size in told if size == world]


def _agreed(told: Iterable[tuple[Key, int]]) -> dict[Key, int]:
    found: dict[Key, set[int]] = {}
    for key, rank in told:
        found.setdefault(key, set()).add(rank)
    return {key: next(iter(ranks)) for key, ranks in found.items() if len(ranks) == 1}
