"""What happened in a training run, window by window: the one thing that all probes write into.

A *window* is what one optimizer step uses: its micro-batches (one for each outermost ``backward``), the calls around
them in order (``events``), and what belongs behind the step, up to the next loss or backward. ``Record`` knows nothing
of processes: ``prove/worker.py`` gives it a ``send`` that writes messages, the monitor one that logs.

A window as it is sent:

    {"kind": "window", "index": 0, "rank": 0, "world": 1, "stepped": True, "skipped": False, "optimizer": 0,
     "micro_batches": [{"losses": [...], "file": "train.py", "line": 14, ...what probes added under their own names}],
     "events": [{"name": "zero_grad", "after": 2, "stepped": False, ...}],   # after: backwards done in this window
     "values": {...what probes added}}

Numbers may be 0-dim tensors until the window is sent: nothing waits for a GPU before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firstfault.prove.messages import Message

Listener = Callable[..., None]
LONGEST = 2048  # micro-batches of a window; one that has more is sent as it is
_SKIPS = 30  # windows without a step that may come on top, while a gradient scaler looks for its factor
MOMENTS = ("backward", "accumulated", "step", "stepped", "window")


class Window:
    def __init__(self, index: int) -> None:
        self.index = index
        self.micro_batches: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.values: dict[str, Any] = {}
        self.optimizer = 0
        self.stepped = False
        self.skipped = False


class Record:
    """Moments that a probe may listen to with ``on``, and what they are called with:

    backward      (tensors)      before the outermost backward of a micro-batch
    accumulated   (micro_batch)  after it; the dictionary is sent with the window, add to it
    step          (optimizer)    before an optimizer uses the gradients, once for each of its steps
    stepped       (optimizer)    after it
    window        (window)       the window is complete and about to be sent; add to ``window.values``

    A listener that raises is taken off and said to be not measured; the user's code never sees its fault.
    """

    def __init__(
        self,
        send: Callable[[Message], None],
        limit: int | None = None,
        stop: Callable[[], None] | None = None,
        place: Callable[[], tuple[int, int]] = lambda: (0, 1),
    ) -> None:
        self.send = send
        self.limit = limit
        self.stop = stop
        self.place = place  # rank and number of ranks, asked when a window is sent
        self.scale: Any = 1.0  # the factor of a gradient scaler in the backward that runs, or is about to
        self.depth = 0  # backward within backward: checkpoints with reentry
        self.muted = False
        # Runs a call that changes gradients, and says by what factor; there where probes/gradient_state.py is on.
        self.around: Callable[[Callable[[], Any]], tuple[Any, float]] | None = None
        self.optimizers: list[Any] = []  # in the order they were first seen
        self.window = Window(0)
        self.steps = 0
        self.enough = False  # all windows that were asked for are measured
        self._skips = 0
        self._listeners: dict[str, list[Listener]] = {moment: [] for moment in MOMENTS}
        self._noted: set[tuple[str, str]] = set()

    def on(self, moment: str, listener: Listener) -> None:
        self._listeners[moment].append(listener)

    def event(self, name: str, **details: Any) -> None:
        """A call worth knowing, put at its place in the order of the window."""
        if not self.muted:
            done = len(self.window.micro_batches)
            self.window.events.append({"name": name, "after": done, "stepped": self.window.stepped, **details})

    def not_measured(self, probe: str, why: str) -> None:
        """Said once for each reason."""
        if (probe, why) not in self._noted:
            self._noted.add((probe, why))
            self.send({"kind": "note", "probe": probe, "why": why})

    def guard(self, probe: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call as one that never raises: a fault of ours becomes a note, and the answer None."""

        def guarded(*arguments: Any, **named: Any) -> Any:
            try:
                return call(*arguments, **named)
            except Exception as error:
                self.not_measured(probe, f"the probe failed ({type(error).__name__}: {error})"[:300])
                return None

        return guarded

    # ------------------------------------------------------------------ called by probes/boundaries.py and losses

    def activity(self) -> None:
        """A loss or a backward of the next window begins: the one before is complete. May end the run."""
        if self.enough and self.stop:  # the script caught the end, and goes on
            self.stop()
        if self.muted or not self.window.stepped:
            return
        self._skips += self.window.skipped
        self.close()
        self.enough = self.limit is not None and self.window.index - min(self._skips, _SKIPS) >= self.limit
        if self.enough and self.stop:
            self.stop()

    def begin_backward(self, tensors: Any, place: tuple[str, int] = ("", 0)) -> None:
        self.activity()
        self.tell("backward", tensors)
        self.window.micro_batches.append({"losses": [], "file": place[0], "line": place[1]})

    def end_backward(self) -> None:
        self.tell("accumulated", self.window.micro_batches[-1])
        done = len(self.window.micro_batches)
        if done & (done - 1) == 0:  # 1, 2, 4, ...: enough to say later that a window never closed
            self.send({"kind": "progress", "window": self.window.index, "backwards": done})
        if done >= LONGEST:  # No step will come, and what is kept would grow without end.
            self.close()
            self.enough = self.limit is not None
            if self.enough and self.stop:
                self.stop()

    def begin_step(self, optimizer: Any) -> None:
        self.steps += 1
        if self.window.micro_batches:
            self.tell("step", optimizer)
            self.event("step", optimizer=self.number(optimizer), within_backward=self.depth > 0)
            if not self.window.stepped:
                self.window.stepped, self.window.optimizer = True, self.number(optimizer)

    def end_step(self, optimizer: Any) -> None:
        if self.window.micro_batches:
            self.tell("stepped", optimizer)

    def skip_step(self, optimizer: Any) -> None:
        """A gradient scaler found infinite gradients: the window ends without a step."""
        if self.window.micro_batches and not self.window.stepped:
            self.window.stepped = self.window.skipped = True
            self.event("skipped", optimizer=self.number(optimizer))

    def number(self, optimizer: Any) -> int:
        for at, known in enumerate(self.optimizers):
            if known is optimizer:
                return at
        self.optimizers.append(optimizer)
        return len(self.optimizers) - 1

    def forget(self) -> None:
        """Start anew: in a forked child nothing that the parent measured counts."""
        self.window, self.depth, self.scale, self._skips = Window(0), 0, 1.0, 0

    def close(self) -> None:
        """Send the window as it is, and open the next."""
        window = self.window
        self.tell("window", window)
        self.window = Window(window.index + 1)
        if window.micro_batches or window.events:
            self.guard("window", self._send_window)(window)

    def _send_window(self, window: Window) -> None:
        rank, world = self.place()
        message = {
            "kind": "window",
            "index": window.index,
            "rank": rank,
            "world": world,
            "stepped": window.stepped,
            "skipped": window.skipped,
            "optimizer": window.optimizer,
            "micro_batches": window.micro_batches,
            "events": window.events,
            "values": window.values,
        }
        self.send(plain(message))

    def tell(self, moment: str, *arguments: Any) -> None:
        for listener in list(self._listeners[moment]):
            try:
                listener(*arguments)
            except Exception as error:
                self._listeners[moment].remove(listener)
                probe = str(getattr(listener, "__module__", "")).rpartition(".")[2]
                self.not_measured(probe, f"the probe failed ({type(error).__name__}: {error})"[:300])


def plain(value: Any) -> Any:
    """A value as JSON has it: tensors become numbers or lists."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
