"""Where numbers go: a callable, a SummaryWriter, a text file that Prometheus' node exporter reads."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from firstfault.monitor.values import MEANINGS

Sink = Callable[[dict[str, float], int], None]
PREFIX = "firstfault/"
_COUNTERS = ("steps", "skipped_steps", "micro_batches")


def tensorboard_sink(writer: Any) -> Sink:
    def log(values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(PREFIX + name, value, step)

    return log


def prometheus_sink(path: str | os.PathLike[str]) -> Sink:
    """The file is replaced as a whole, so that no reader sees half of it."""
    target = os.path.abspath(os.fspath(path))

    def log(values: dict[str, float], step: int) -> None:
        fresh = f"{target}.{os.getpid()}"
        with open(fresh, "w", encoding="utf-8") as file:
            file.write(prometheus_text(values))
        os.replace(fresh, target)

    return log


def prometheus_text(values: dict[str, float]) -> str:
    lines: list[str] = []
    described: set[str] = set()
    for key, value in sorted(values.items()):
        name, _, loss = key.partition("/")
        metric = f"firstfault_{name}" + ("_total" if name in _COUNTERS else "")
        if name not in described:
            described.add(name)
            kind = "counter" if name in _COUNTERS else "gauge"
            lines += [f"# HELP {metric} {MEANINGS[name]}", f"# TYPE {metric} {kind}"]
        label = '{loss="' + loss.replace("\\", "\\\\").replace('"', '\\"') + '"}' if loss else ""
        lines.append(f"{metric}{label} {value!r}")
    return "\n".join(lines) + "\n"
