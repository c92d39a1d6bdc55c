"""Which ranks the Flight Recorder shows behind the others, and on which side: the host's or the device's.

A rank whose last enqueued collective is below its group's maximum stopped issuing work: dead, in another branch, or
waiting for data or the GIL. One that has issued all and completed less is stuck on its device. Both are read group by
group; point-to-point groups are left out, because their numbers differ between ranks by design. On the four published
sets of injected faults (NVIDIA resiliency-ext, 16 ranks each) the two together name the injected ranks and no other.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from firstfault.diagnose.report import Initiating, Missing, Read, Report, Suspect
from firstfault.library import Library
from firstfault.logs.recorder import Counts, Dump, Group

Side = Literal["host", "device"]
WAITED = frozenset(("watchdog-timeout", "gloo-timeout", "heartbeat"))


class Lag(NamedTuple):
    """One rank behind in one group: how far, and the collective that the others wait in."""

    rank: int
    side: Side
    group: Group
    own: Counts
    most: Counts
    operation: str


def lags_of(dumps: Sequence[Dump]) -> list[Lag]:
    """The ranks that are behind, the smallest group first: there the others wait for fewest."""
    groups = {name: group for dump in dumps for name, group in dump.groups.items()}
    apart = {name for dump in dumps for name in dump.point_to_point}
    found: list[Lag] = []
    for name, counts in _by_group(dumps, groups).items():
        if name not in apart and len(counts) > 1:
            operation = next((dump.waiting[name] for dump in dumps if name in dump.waiting), "")
            found += _lags_in(groups[name], counts, operation)
    return sorted(found, key=lambda lag: (len(lag.group.ranks), lag.rank))


def silent_ranks(dumps: Sequence[Dump]) -> list[int]:
    """Ranks that belong to a group and have no dump at all."""
    members = {rank for dump in dumps for group in dump.groups.values() for rank in group.ranks}
    return sorted(members - {dump.rank for dump in dumps})


def _by_group(dumps: Sequence[Dump], groups: dict[str, Group]) -> dict[str, dict[int, Counts]]:
    table: dict[str, dict[int, Counts]] = {}
    for dump in dumps:
        for number, counts in dump.counts.items():
            name = _name_of(number, dump, dumps, groups)
            if name is not None:
                table.setdefault(name, {})[dump.rank] = counts
    return table


def _name_of(number: int, dump: Dump, dumps: Sequence[Dump], groups: dict[str, Group]) -> str | None:
    """A rank without entries in a group does not tell the group's number; another member of the group does."""
    if number in dump.names:
        return dump.names[number]
    for other in dumps:
        name = other.names.get(number)
        if name is not None and name in groups and dump.rank in groups[name].ranks:
            return name
    return None


def _lags_in(group: Group, counts: dict[int, Counts], operation: str) -> list[Lag]:
    enqueued = [each.enqueued for each in counts.values() if each.enqueued is not None]
    completed = [each.completed for each in counts.values() if each.completed is not None]
    if not enqueued or not completed:
        return []
    most = Counts(max(enqueued), max(completed))
    found = []
    for rank, own in counts.items():
        if own.completed is not None and own.completed < max(completed):
            found.append(Lag(rank, "device", group, own, most, operation))
        elif own.enqueued is not None and own.enqueued < max(enqueued):
            found.append(Lag(rank, "host", group, own, most, operation))
    return found


# ------------------------------------------------------------------------------------------ the report


def report_of_dumps(dumps: Sequence[Dump], library: Library, read: Read) -> Report:
    """What the dumps show: never a cause, but which ranks the others wait for."""
    lags, silent = _worst(lags_of(dumps)), silent_ranks(dumps)
    suspects = _suspects(lags, silent)
    if not suspects:
        return _nobody_behind(library, read)
    signature = library.signatures["watchdog-timeout"]
    single = suspects[0].rank if len(suspects) == 1 else None
    return Report(
        verdict="symptom-only",
        initiating=Initiating(
            signature=signature.id,
            title="Ranks are behind in a collective",
            rank=single,
            rank_basis="inferred" if single is not None else None,
            host=None,
            time=None,
            exception="",
            message="; ".join(f"rank {each.rank}: {each.because}" for each in suspects),
            frame=None,
            reason="The Flight Recorder's counters of these ranks are below those of their groups.",
            evidence=(),
        ),
        cause=" ".join(f"Rank {each.rank}: {each.because}." for each in suspects),
        fix=tuple(signature.fix),
        verify=signature.verify,
        collateral=(),
        suspects=suspects,
        missing=_missing(lags, silent),
        contradictions=(),
        related=signature.related,
        read=read,
    )


def with_dumps(report: Report, dumps: Sequence[Dump]) -> Report:
    """The report of the text, with the ranks that the dumps show behind where the text only shows who waited."""
    first = report.initiating
    if first is None or first.signature not in WAITED or report.verdict != "symptom-only":
        return report
    lags, silent = _worst(lags_of(dumps)), silent_ranks(dumps)
    suspects = _suspects(lags, silent)
    if not suspects:
        return report
    single = suspects[0].rank if len(suspects) == 1 else None
    first = first._replace(rank=single, rank_basis="inferred" if single is not None else None)
    return report._replace(initiating=first, suspects=suspects, missing=_missing(lags, silent))


def _suspects(lags: list[Lag], silent: list[int]) -> tuple[Suspect, ...]:
    behind = tuple(Suspect(lag.rank, because(lag)) for lag in lags)
    return behind + tuple(Suspect(rank, "there is no dump of this rank") for rank in silent)


def because(lag: Lag) -> str:
    group = lag.group.description or f"group {lag.group.name}"
    if lag.side == "host":
        return f"it enqueued {lag.own.enqueued} of {lag.most.enqueued} collectives of {group}: its host side is behind"
    return f"it completed {lag.own.completed} of {lag.most.completed} collectives of {group}: its device side is behind"


def _worst(lags: list[Lag]) -> list[Lag]:
    """One lag a rank: the one in its smallest group."""
    first: dict[int, Lag] = {}
    for lag in lags:
        first.setdefault(lag.rank, lag)
    return sorted(first.values(), key=lambda lag: lag.rank)


def _missing(lags: list[Lag], silent: list[int]) -> tuple[Missing, ...]:
    facts = []
    if any(lag.side == "host" for lag in lags):
        ranks = _listed([lag.rank for lag in lags if lag.side == "host"])
        facts.append(Missing(f"Where {ranks} stopped issuing work: the Python stacks", "py-spy dump --pid PID"))
    if any(lag.side == "device" for lag in lags):
        ranks = _listed([lag.rank for lag in lags if lag.side == "device"])
        facts.append(Missing(f"What the devices of {ranks} report: Xid and ECC errors", "dmesg -T | grep -i xid"))
    if silent:
        facts.append(Missing(f"The logs and dumps of {_listed(silent)}", "export TORCH_FR_BUFFER_SIZE=2000"))
    return tuple(facts)


def _listed(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _nobody_behind(library: Library, read: Read) -> Report:
    signature = library.signatures["watchdog-timeout"]
    missing = (
        Missing("Which rank was late: all ranks stand at the same collective in every group",
                "for pid in $(pgrep -f python); do py-spy dump --pid $pid; done"),
    )  # fmt: skip
    first = Initiating(
        signature.id, signature.title, None, None, None, None, "", "", None,
        "All ranks that wrote a dump stand at the same collective.", (),
    )  # fmt: skip
    return Report(
        "symptom-only", first, "No rank is behind in any group.", tuple(signature.fix), signature.verify, (), (),
        missing, (), signature.related, read,
    )  # fmt: skip
