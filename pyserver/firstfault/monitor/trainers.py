"""The monitor as a callback: of transformers' Trainer, of Lightning. Each is imported only when it is asked for."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

import torch

from firstfault.monitor.sinks import PREFIX
from firstfault.monitor.watching import Monitor


def hf_callback(trainer: Any = None, **options: Any) -> Any:
    """A ``TrainerCallback`` whose values stand in the Trainer's own logs, under ``firstfault/``.

    Given the trainer it is added, in front of those that report to TensorBoard and the like, which then see the values
    too. Without it, it goes into ``Trainer(callbacks=[...])``; then the log history and the console have them.
    """
    base = importlib.import_module("transformers").TrainerCallback
    callback = type("FirstfaultCallback", (_TrainerCallback, base), {})(options)
    if trainer is not None:
        trainer.callback_handler.callbacks.insert(0, callback)
    return callback


def lightning_callback(**options: Any) -> Any:
    """A ``Callback`` whose values go to the loggers of the trainer, under ``firstfault/``."""
    base = importlib.import_module(_lightning()).Callback
    return type("FirstfaultCallback", (_LightningCallback, base), {})(options)


def _lightning() -> str:
    """The package that the script uses: a trainer takes callbacks of its own one alone."""
    for name in ("lightning.pytorch", "pytorch_lightning"):
        if name in sys.modules:
            return name
    return "lightning.pytorch" if importlib.util.find_spec("lightning") else "pytorch_lightning"


class _Callback:
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        Monitor(torch.nn.Identity(), **options)  # wrong options are told now, not when training begins
        self.options = options
        self.monitor: Monitor | None = None

    def begin(self, model: Any) -> None:
        if self.monitor is None:
            self.monitor = Monitor(model, **self.options)
            self.monitor.replaceable = True
            self.monitor.__enter__()

    def end(self, failed: bool = False) -> None:
        monitor, self.monitor = self.monitor, None
        if monitor is not None:
            monitor.__exit__(RuntimeError if failed else None)

    def values(self) -> dict[str, float]:
        fresh = self.monitor.fresh() if self.monitor is not None else {}
        return {PREFIX + name: value for name, value in fresh.items()}


class _TrainerCallback(_Callback):
    def on_train_begin(self, arguments: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.end(failed=True)  # an exception ended the training before
        self.begin(model)

    def on_log(self, arguments: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        values = self.values() if isinstance(logs, dict) else {}
        if values:
            logs.update(values)
            if state.log_history:
                state.log_history[-1].update(values)

    def on_train_end(self, arguments: Any, state: Any, control: Any, **_: Any) -> None:
        self.end()


class _LightningCallback(_Callback):
    def on_train_start(self, trainer: Any, module: Any) -> None:
        self.begin(module)

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any, **__: Any) -> None:
        values = self.values()
        for logger in trainer.loggers if values else ():
            logger.log_metrics(values, step=trainer.global_step)  # self.log() drops them between its logging steps

    def on_train_end(self, trainer: Any, module: Any) -> None:
        self.end()

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        self.end(failed=True)
