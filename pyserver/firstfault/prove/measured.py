"""Messages become values: windows, joined over the ranks by their number.

``Measured`` as JSON, with the verdicts of ``prove/verdict.py`` (``firstfault measure --format json``, the editor):

    {"schema": 1,
     "ended": "Stopped after 2 windows, as planned.",
     "ranks": [{"rank": 0, "pid": 4711, "python": "3.11.7", "torch": "2.13.0"}],
     "windows": [{"index": 0, "micro_batches": [
         {"rank": 0, "number": 0, "loss": "cross_entropy", "reduction": "mean", "file": "train.py", "line": 12,
          "targets": 10, "weight": 0.05, "share": 0.5, "right_share": 0.1, "dropped": false}],
       "ratio": 9.0, "mass": 1.0, "ledger": [{"rank": 0, "name": "zero_grad", "after": 0}],
       "gradient": {"error": 1.1, "cosine": 0.6, "scale": 0.9, "noise": 2e-7, ...} | null, "values": {...}}],
     "verdicts": [{"code": "GA101", "name": "mean-of-means", "state": "proven" | "refuted" | "not measured",
                   "message": "", "file": "train.py" | null, "line": 12 | null, "suspected": true}],
     "notes": [{"probe": "gradient", "why": ""}]}

``weight`` is what one target weighs in the step's gradient, ``share`` the part of a micro-batch in it, ``right_share``
the part that its targets are of all. ``suspected``: a finding of the lint names the fault too. Numbers that are not
finite are null.
"""

from __future__ import annotations

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
    dropped: bool  # its gradient was cleared before the step
    file: str  # of the line that called backward
    line: int
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

    @property
    def restarts(self) -> list[Event]:
        """A loader that is run through anew in the middle of the window: it holds the end of one epoch and more."""
        return [each for each in self.inside("data_begin") if each.details.get("again")]

    @property
    def accumulated(self) -> int:
        """Micro-batches as far as it is known that they are some: backward calls of one line, at the same weights.
        Two losses with a backward each, or the two passes of sharpness-aware training, are none."""
        if any(each.values.get("moved") for each in self.micro_batches):
            return 1
        places = [(each.file, each.line) for each in self.micro_batches]
        return max(map(places.count, places), default=0)

    def named(self, *names: str) -> list[Event]:
        return [each for each in self.events if each.name in names]


class Window(NamedTuple):
    number: int
    parts: tuple[Part, ...]  # by rank

    @property
    def world(self) -> int:
        return max(part.world for part in self.parts)

    @property
    def length(self) -> int:
        """Micro-batches on each rank: k."""
        return len(self.parts[0].micro_batches)

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
    finished: bool = True  # the script ended by itself: what is open then stays open
    open_backwards: int = 0  # backward calls of the last window that no step closed, at least so many

    @property
    def complete(self) -> list[Window]:
        return [window for window in self.windows if window.complete]

    @property
    def regular(self) -> list[Window]:
        """The complete windows that lie within one epoch."""
        return [window for window in self.complete if not any(part.restarts for part in window.parts)]


def measured(ended: str, processes: Iterable[Process], finished: bool = True) -> Measured:
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
    by_rank = tuple(ranks[each] for each in sorted(ranks))
    return Measured(ended, by_rank, tuple(windows), tuple(notes), finished, _open_backwards(processes))


def _open_backwards(processes: list[Process]) -> int:
    messages = [each for process in processes for each in process.messages]
    closed = {each.get("index") for each in messages if each["kind"] == "window" and each.get("stepped")}
    open_ = [each for each in messages if each["kind"] == "progress" and each.get("window") not in closed]
    return max((int(each.get("backwards", 0)) for each in open_), default=0)


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
    optimizer = message["optimizer"]
    cleared = [
        event["after"]
        for event in message["events"]
        if event["name"] == "cleared" and event.get("optimizer") == optimizer and not event["stepped"]
    ]
    found = []
    for number, micro_batch in reversed(list(enumerate(message["micro_batches"]))):
        factor *= micro_batch.get("factor_after", {}).get(str(optimizer), 1.0)
        losses = tuple(_loss(each, factor) for each in micro_batch["losses"])
        dropped = number < max(cleared, default=0)
        values = {name: each for name, each in micro_batch.items() if name not in ("losses", "file", "line")}
        place = str(micro_batch["file"]), int(micro_batch["line"])
        found.append(MicroBatch(losses, dropped, *place, values))
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
