"""``with monitor(model):``. Puts the probes on, hears of each measured window, logs and warns, takes all off again."""

from __future__ import annotations

import logging
import os
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from firstfault.monitor import rescaling
from firstfault.monitor.alerts import Alerts
from firstfault.monitor.epochs import Epochs
from firstfault.monitor.ranks import Ranks, joined
from firstfault.monitor.sampling import Sampled, read_at_once
from firstfault.monitor.sinks import Sink, prometheus_sink, tensorboard_sink
from firstfault.monitor.values import values_of
from firstfault.prove.measured import measured
from firstfault.prove.messages import Message, Process
from firstfault.prove.probes import install_all
from firstfault.prove.probes.patching import Undo
from firstfault.prove.worker import place, too_old

_log = logging.getLogger("firstfault")
_active: list[Monitor] = []  # at most one: the hooks are global
_sessions = 0  # the same on all ranks


class Monitor:
    """Measure one optimizer step in ``every``; the first two always.

    ``tensorboard`` is a SummaryWriter, ``prometheus`` the path of a text file, ``log`` is called with the values and
    the number of the step. What was logged last is in ``values``, what was warned of in ``warnings``. Rank 0 logs.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        every: int = 50,
        tensorboard: Any = None,
        prometheus: str | os.PathLike[str] | None = None,
        log: Sink | None = None,
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"monitor() takes the model, a torch.nn.Module, not {type(model).__name__}")
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"every is a number of optimizer steps, 1 or more, not {every!r}")
        if log is not None and not callable(log):
            raise TypeError("log is called with the values and the step: log(values, step)")
        if tensorboard is not None and not hasattr(tensorboard, "add_scalar"):
            raise TypeError("tensorboard takes a SummaryWriter")
        self.model, self.every = model, every
        self.values: dict[str, float] = {}
        self.warnings: list[str] = []
        self.replaceable = False  # a trainer's callback, which an exception leaves on
        self._sinks: list[Sink] = [log] if log else []
        self._sinks += [tensorboard_sink(tensorboard)] if tensorboard is not None else []
        self._sinks += [prometheus_sink(prometheus)] if prometheus is not None else []
        self._fresh = False
        self._record: Sampled | None = None
        self._undo: list[Undo] = []
        self._entered = 0

    def __enter__(self) -> Monitor:
        self._entered += 1
        if self._entered > 1:
            return self
        try:
            self._start()
        except Exception as error:
            self._fail(f"{type(error).__name__}: {error}")
            self._take_off()
        return self

    def __exit__(self, kind: Any = None, error: Any = None, trace: Any = None) -> None:
        self._entered -= 1
        if self._record is None or self._entered:
            return
        try:
            if kind is None and not self._record.off:
                self._epochs.run_ended()
                self._finish_ranks()
        except Exception as fault:
            self._fail(f"{type(fault).__name__}: {fault}")
        self._take_off()

    @property
    def is_on(self) -> bool:
        return self._record is not None and not self._record.off

    def fresh(self) -> dict[str, float]:
        """What was measured since this was asked last; empty if nothing was."""
        fresh, self._fresh = self._fresh, False
        return dict(self.values) if fresh else {}

    # ------------------------------------------------------------------------------------------- on and off

    def _start(self) -> None:
        global _sessions
        if _active and _active[0].replaceable:
            _active[0].__exit__(RuntimeError)
        if _active:
            return self._say("a monitor is on already; this one measures nothing")
        unfit = too_old()
        if unfit:
            return self._say(f"nothing is measured: {unfit}")
        _active.append(self)
        _sessions += 1
        self._session = _sessions
        self._ranks: Ranks | None = None
        self._seen: dict[str, int] = {}
        self._alerts = Alerts(self._warn, lambda what: self._say(f"not measured: {what}"))
        record = self._record = Sampled(self._take, self.every, _place, self._window_ended, self._fail)
        self._epochs = Epochs(record, self._warn)
        self._install(record)
        return None

    def _install(self, record: Sampled) -> None:
        names = ["boundaries", "coupled", "ledger", "token_weights"]
        if _is_compiled(self.model):
            self._say("not measured: BatchNorm and losses inside of a compiled model")
        elif any(isinstance(each, _BatchNorm) for each in self.model.modules()):
            names.append("batchnorm")
        self._undo.append(install_all(record, names))
        rescaling.install(record, self.model)
        record.on("window", read_at_once)
        self._undo += [record.count_backwards(), self._epochs.install()]

    def _take_off(self) -> None:
        """Everything is as it was; hooks that others have wrapped in the meantime stay, and do nothing."""
        if self._record is not None:
            self._record.off = self._record.muted = True
            self._record = None
        while self._undo:
            try:
                self._undo.pop()()
            except Exception as error:
                self._fail(f"{type(error).__name__}: {error}")
        if self in _active:
            _active.remove(self)

    # ------------------------------------------------------------------------------------------- what is heard

    def _window_ended(self, size: int) -> None:
        self._epochs.window_ended(size)

    def _take(self, message: Message) -> None:
        if message["kind"] == "note":
            self._note(str(message["probe"]), str(message["why"]))
        elif message["kind"] == "window" and not message["stepped"]:
            # Releases of torch hide the steps of optimizers as soon as torch.compile is used.
            self._fail(f"{len(message['micro_batches']):,} micro-batches ran backward and no optimizer step was seen")
        elif message["kind"] == "window" and not message["skipped"]:
            self._take_window(message)

    def _note(self, probe: str, why: str) -> None:
        if probe == "boundaries" or why.startswith("the probe "):  # a fault of ours, or windows that are none
            self._fail(why)
        else:
            self._say(f"not measured: {why}")

    def _take_window(self, message: Message) -> None:
        world = message["world"]
        if self._ranks is None:
            self._ranks = joined(self._session, world)
        if self._ranks is None:
            return self._read([{**message, "world": 1}], world == 1)
        for messages in self._ranks.join(message):
            self._read(messages, True)
        return None

    def _finish_ranks(self) -> None:
        rank, world = _place()
        if self._ranks is not None and rank == 0:
            for messages in self._ranks.collect(world, wait=True):
                self._read(messages, True)

    def _read(self, messages: list[Message], whole: bool) -> None:
        processes = [Process(0, [message], 0) for message in messages]
        for window in measured("", processes).windows:
            self._alerts.look(window, whole)
            self._log({**values_of(window, whole), **self._counts()}, window.number + 1)

    def _counts(self) -> dict[str, float]:
        record = self._record
        if record is None:
            return {}
        counts = {
            "steps": float(record.windows - record.skipped),
            "skipped_steps": float(record.skipped),
            "micro_batches": float(record.micro_batches),
        }
        if self._epochs.last is not None:
            counts["steps_per_epoch"] = float(self._epochs.last.steps)
        return counts

    # ------------------------------------------------------------------------------------------- what is told

    def _log(self, values: dict[str, float], step: int) -> None:
        if _place()[0]:
            return
        self.values, self._fresh = values, True
        for sink in list(self._sinks):
            try:
                sink(dict(values), step)
            except Exception as error:
                self._sinks.remove(sink)
                self._say(f"a log takes no more values ({type(error).__name__}: {error})")

    def _warn(self, code: str, sentence: str) -> None:
        self._say(f"{code}: {sentence.rstrip('.')}.")

    def _say(self, sentence: str) -> None:
        if sentence in self.warnings:
            return
        self.warnings.append(sentence)
        rank, world = _place()
        _log.warning("Firstfault: %s%s", f"rank {rank}: " if world > 1 else "", sentence)

    def _fail(self, why: str) -> None:
        """A fault of ours: said once, and nothing more is measured."""
        if self._record is not None:
            if self._record.off:
                return
            self._record.off = self._record.muted = True
        self._say(f"the monitor is off: {why}")


def _is_compiled(model: torch.nn.Module) -> bool:
    return any(
        hasattr(each, "_orig_mod") or getattr(each, "_compiled_call_impl", None) is not None for each in model.modules()
    )


def _place() -> tuple[int, int]:
    """The worker's answer; the environment of a script may hold anything."""
    try:
        return place()
    except ValueError:
        return 0, 1
