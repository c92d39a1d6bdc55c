"""Losses in which the examples of a micro-batch stand against one another.

A cross entropy over a square of similarities, whose targets are its diagonal, compares each example with the others of
its own micro-batch. In a micro-batch stands `"in_batch": {"rows": 6, "losses": 2}`.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch.nn import functional

from firstfault.prove.probes.patching import Undo, wrap
from firstfault.prove.record import Record

FEWEST = 4  # labels of three examples may happen to be 0, 1, 2


def install(record: Record) -> Undo:
    rows: list[int] = []  # of such losses since the last backward

    def accumulated(micro_batch: dict[str, Any]) -> None:
        if rows:
            micro_batch["in_batch"] = {"rows": max(rows), "losses": len(rows)}
            rows.clear()

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        look = record.guard("coupled", lambda *arguments, **named: rows.extend(_diagonal(*arguments, **named)))

        def cross_entropy(*arguments: Any, **named: Any) -> Any:
            output = original(*arguments, **named)
            if not record.muted and isinstance(output, torch.Tensor) and output.requires_grad:
                look(*arguments, **named)
            return output

        return cross_entropy

    record.on("accumulated", accumulated)
    return wrap(functional, "cross_entropy", make)


def _diagonal(input: Any, target: Any, *_: Any, **__: Any) -> list[int]:
    if input.dim() != 2 or input.shape[0] != input.shape[1] or len(input) < FEWEST or target.dim() != 1:
        return []
    diagonal = torch.arange(len(target), device=target.device)
    return [len(target)] if bool((target == diagonal).all()) else []
