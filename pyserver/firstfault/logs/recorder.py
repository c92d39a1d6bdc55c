"""Flight Recorder dumps: what each rank had enqueued and completed in each process group when the job was stopped.

torch writes one pickle a rank (``TORCH_FR_DUMP_TEMP_FILE`` with the rank appended), and JSON through its debug server.
A dump holds values of builtin types only, so the unpickler here refuses every class: a file that asks for one is not
a dump, whoever wrote it.
"""

import re
from typing import Any, NamedTuple

from firstfault.patterns import gated

# torch keeps some thousand entries; a dump of that many collectives has a few megabytes.
LARGEST = 256 << 20
PICKLE_MAGIC = re.compile(rb"\x80[\x02-\x05]")
RANK_AT_END = gated(r"(?P<rank>\d{1,6})(?:\.(?:json|pkl|pickle|bin))?$")
# Counters above this are garbage that some versions print for a group that never started.
LARGEST_COUNT = 1 << 31


class Group(NamedTuple):
    """A process group: its name, its description, its global ranks."""

    name: str
    description: str
    ranks: tuple[int, ...]


class Counts(NamedTuple):
    """Sequence numbers of the last collective that a rank enqueued, and completed, in one group; None if unknown."""

    enqueued: int | None
    completed: int | None


class Dump(NamedTuple):
    """One rank's dump. ``names`` maps the rank's local group numbers to names, as far as its entries tell.

    ``waiting`` holds the operation of the first collective of a group that was not completed.
    """

    rank: int
    groups: dict[str, Group]
    names: dict[int, str]
    counts: dict[int, Counts]
    point_to_point: frozenset[str]
    waiting: dict[str, str]


def read_dump(name: str, data: bytes) -> Dump | None:
    """The dump in these bytes, or None where they are none, or the name tells no rank."""
    found = RANK_AT_END.search(name)
    raw = _load(data)
    if found is None or not isinstance(raw, dict) or not {"pg_config", "pg_status", "entries"} <= set(raw):
        return None
    try:
        return _dump(int(found["rank"]), raw)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None  # It looks like a dump and is none, or is of a version that nobody has seen yet.


def looks_like_dump(head: bytes) -> bool:
    return bool(PICKLE_MAGIC.match(head)) or (head.lstrip()[:1] == b"{" and b'"pg_' in head)


def _load(data: bytes) -> Any:
    # Few logs come with dumps: what reads them is loaded only for these.
    import io
    import json
    import pickle

    class NoClasses(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            raise pickle.UnpicklingError(f"a Flight Recorder dump holds no {module}.{name}")

        def persistent_load(self, pid: Any) -> Any:
            raise pickle.UnpicklingError("a Flight Recorder dump refers to nothing outside")

    try:
        return NoClasses(io.BytesIO(data)).load() if PICKLE_MAGIC.match(data) else json.loads(data)
    except Exception:  # A damaged pickle raises anything, from IndexError to MemoryError.
        return None


def _dump(rank: int, raw: dict[str, Any]) -> Dump:
    entries = [entry for entry in raw["entries"] if isinstance(entry, dict)]
    return Dump(
        rank=rank,
        groups={name: _group(name, config) for name, config in raw["pg_config"].items()},
        names={int(entry["pg_id"]): str(entry["process_group"][0]) for entry in entries},
        counts={int(number): _counts(status) for number, status in raw["pg_status"].items()},
        point_to_point=frozenset(str(entry["process_group"][0]) for entry in entries if entry.get("is_p2p")),
        waiting=_waiting(entries),
    )


def _group(name: str, config: dict[str, Any]) -> Group:
    ranks = config["ranks"]
    listed = re.findall(r"\d+", ranks) if isinstance(ranks, str) else ranks
    return Group(str(name), str(config.get("desc", "")), tuple(int(rank) for rank in listed))


def _counts(status: dict[str, Any]) -> Counts:
    return Counts(_count(status.get("last_enqueued_collective")), _count(status.get("last_completed_collective")))


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and -1 <= value < LARGEST_COUNT else None


def _waiting(entries: list[dict[str, Any]]) -> dict[str, str]:
    first: dict[str, tuple[int, str]] = {}
    for entry in entries:
        if entry.get("state") == "completed" or entry.get("is_p2p"):
            continue
        name, number = str(entry["process_group"][0]), int(entry["collective_seq_id"])
        operation = str(entry.get("profiling_name", "")).removeprefix("nccl:")
        if name not in first or number < first[name][0]:
            first[name] = (number, operation)
    return {name: f"{operation} {number}" for name, (number, operation) in first.items()}
