"""Messages become values: windows, joined over the ranks by their number.

``Measured`` as JSON, with the verdicts of ``prove/verdict.py`` (``firstfault measure --format json``, the editor):

    {"schema": 1,
     "ended": "Stopped after 2 windows, as planned.",
     "ranks": [{"rank": 0, "pid": 4711, "python": "3.11.7", "torch": "2.13.0"}],
     "windows": [{"index": 0, "micro_batches": [
         {"rank": 0, "number": 0, "loss": "cross_entropy", "reduction": "mean", "file": "train.py", "line": 12,
          "targets": 10, "weight": 0.05, "share": 0.5, "right_share": 0.1, "dropped": false}],
       "ratio": 9.0, "mass": 1.0, "ledger": [{"rank": 0, "name": "zero_grad", "after": 0}], "values": {...}}],
     "verdicts": [{"code": "GA101", "name": "mean-of-means", "state": "proven" | "refuted" | "not measured",
                   "message": "", "file": "train.py" | null, "line": 12 | null, "suspected": true}],
     "notes": [{"probe": "gradient", "why": ""}]}

``weight`` is what one target weighs in the step's gradient, ``share`` the part of a micro-batch in it, ``right_share``
the part that its targets are of all. ``suspected``: a finding of the lint names the fault too. Numbers that are not
finite are null.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from firstfault.prove.messages import Message, Process


class Loss(NamedTuple):
    """One call of a loss function whose gradient arrived; see ``probes/token_weights.py``."""

    kind: str
    reduction: str
    file: str
    line: int
    targets: int
    counted: float
    weight: float  # of one unit of `counted` in the step's gradient: scaler, later factors and ranks are in it
    low: float
    high: float
    unit: str
    class_weights: bool
    dtype: str

    @property
    def mass(self) -> float:
        return self.weight * self.counted


class Event(NamedTuple):
    name: str
    after: int  # backward calls of the window before it
    stepped: bool  # behind the optimizer step
    details: dict[str, Any]


class MicroBatch(NamedTuple):
    losses: tuple[Loss, ...]
    values: dict[str, Any]


class Part(NamedTuple):
    """The window of one rank."""

    rank: int
    world: int
    stepped: bool
    skipped: bool
    optimizer: int
    micro_batches: tuple[MicroBatch, ...]
    events: tuple[Event, ...]
    values: dict[str, Any]

    def inside(self, *names: str) -> list[Event]:
        """Events of these names between the first backward and the step that ends the window, those after it left out:
        what runs behind the last backward belongs to the step."""
        last = len(self.micro_batches)
        return [each for each in self.events if each.name in names and 0 < each.after < last and not each.stepped]

    def named(self, *names: str) -> list[Event]:
        return [each for each in self.events if each.name in names]


class Window(NamedTuple):
    number: int
    parts: tuple[Part, ...]  # by rank

    @property
    def world(self) -> int:
        return max(part.world for part in self.parts)

    @property
    def complete(self) -> bool:
        """Every rank sent it, each stepped, and no gradient scaler left the step out."""
        return len(self.parts) == self.world and all(part.stepped and not part.skipped for part in self.parts)


class Rank(NamedTuple):
    rank: int
    pid: int
    python: str
    torch: str


class Measured(NamedTuple):
    ended: str
    ranks: tuple[Rank, ...]
    windows: tuple[Window, ...]
    notes: tuple[tuple[str, str], ...]  # probe, and why it did not measure

    @property
    def complete(self) -> list[Window]:
        return [window for window in self.windows if window.complete]


def measured(ended: str, processes: Iterable[Process]) -> Measured:
    """What the processes sent, as one value. A message that lacks what it should have is left out."""
    processes = list(processes)
    parts: dict[int, dict[int, Part]] = {}
    ranks: dict[int, Rank] = {}
    notes: dict[tuple[str, str], None] = {}
    for process in processes:
        for message in process.messages:
            if message["kind"] == "note":
                notes.setdefault((str(message.get("probe")), str(message.get("why"))))
            if message["kind"] == "window" and (read := _window(message)):
                index, part = read
                parts.setdefault(index, {})[part.rank] = part
                ranks.setdefault(part.rank, _rank(part.rank, process))
    windows = [Window(index, tuple(parts[index][rank] for rank in sorted(parts[index]))) for index in sorted(parts)]
    return Measured(ended, tuple(ranks[each] for each in sorted(ranks)), tuple(windows), tuple(notes))


def _rank(rank: int, process: Process) -> Rank:
    said: dict[str, str] = {each["kind"]: str(each.get("version", "")) for each in process.messages}
    return Rank(rank, process.pid, said.get("python", ""), said.get("torch", ""))


def _window(message: Message) -> tuple[int, Part] | None:
    try:
        micro_batches = tuple(_micro_batches(message))
        events = tuple(_event(each) for each in message["events"])
        part = Part(
            int(message["rank"]),
            int(message["world"]),
            bool(message["stepped"]),
            bool(message["skipped"]),
            int(message["optimizer"]),
            micro_batches,
            events,
            dict(message["values"]),
        )
        return int(message["index"]), part
    except (KeyError, TypeError, ValueError):
        return None


def _micro_batches(message: Message) -> Iterable[MicroBatch]:
    """With weights as they are in the step: what was done to the gradients later is in them, and the mean of ranks."""
    averaged = message["world"] if message["values"].get("averaged_over_ranks") else 1
    factor = 1.0 / averaged
    found = []
    for micro_batch in reversed(message["micro_batches"]):
        factor *= micro_batch.get("factor_after", 1.0)
        losses = tuple(_loss(each, factor) for each in micro_batch["losses"])
        found.append(MicroBatch(losses, {name: each for name, each in micro_batch.items() if name != "losses"}))
    return found[::-1]


def _loss(value: dict[str, Any], factor: float) -> Loss:
    return Loss(
        kind=value["kind"],
        reduction=value["reduction"],
        file=value["file"],
        line=int(value["line"]),
        targets=int(value["targets"]),
        counted=float(value["counted"]),
        weight=float(value["weight"]) * factor,
        low=float(value["low"]) * factor,
        high=float(value["high"]) * factor,
        unit=value["unit"],
        class_weights=bool(value["class_weights"]),
        dtype=value["dtype"],
    )


def _event(value: dict[str, Any]) -> Event:
    details = {name: each for name, each in value.items() if name not in ("name", "after", "stepped")}
    return Event(value["name"], int(value["after"]), bool(value["stepped"]), details)
