"""Losses in which the examples of a micro-batch stand against one another.

A cross entropy over a square of similarities, whose targets are its diagonal, compares each example with the others of
its own micro-batch. In a micro-batch stands `"in_batch": {"rows": 6, "losses": 2}`, and from the second of a window on
`"apart"`: how far its similarities are from those of the one before, in deviations. Other examples are about 1 apart.
Those who keep the features of a whole step and bring in the gradients part by part have the same examples again: 0.
Where the similarities of a micro-batch are all alike, they tell nothing: None.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import torch
from torch.nn import functional

from firstfault.prove.probes.patching import Undo, wrap
from firstfault.prove.record import Record

FEWEST = 4  # labels of three examples may happen to be 0, 1, 2
_ALIKE = 1e-4  # relative deviations below this are rounding
_CORNER = 32  # rows and columns that are compared


class Square(NamedTuple):
    rows: int
    corner: torch.Tensor  # of the similarities


def install(record: Record) -> Undo:
    squares: list[Square] = []  # of such losses since the last backward
    before: list[Square] = []  # of the micro-batch before

    def accumulated(micro_batch: dict[str, Any]) -> None:
        if squares:
            in_batch: dict[str, Any] = {"rows": max(each.rows for each in squares), "losses": len(squares)}
            if len(record.window.micro_batches) > 1:
                in_batch["apart"] = _apart(before, squares)
            micro_batch["in_batch"] = in_batch
        before[:] = squares
        squares.clear()

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        look = record.guard("coupled", lambda *arguments, **named: squares.extend(_diagonal(*arguments, **named)))

        def cross_entropy(*arguments: Any, **named: Any) -> Any:
            output = original(*arguments, **named)
            if not record.muted and isinstance(output, torch.Tensor) and output.requires_grad:
                look(*arguments, **named)
            return output

        return cross_entropy

    record.on("accumulated", accumulated)
    return wrap(functional, "cross_entropy", make)


def _diagonal(input: Any, target: Any, *_: Any, **__: Any) -> list[Square]:
    """The similarities, if the targets are their diagonal."""
    if input.dim() != 2 or input.shape[0] != input.shape[1] or len(input) < FEWEST or target.dim() != 1:
        return []
    diagonal = torch.arange(len(target), device=target.device)
    return [Square(len(input), input.detach()[:_CORNER, :_CORNER].clone())] if bool((target == diagonal).all()) else []


def _apart(before: list[Square], now: list[Square]) -> float | None:
    """The mean distance of two micro-batches' similarities in their deviations; that of the closest loss."""
    distances = [_distance(one, other) for one, other in zip(before, now)]
    known = [each for each in distances if each is not None]
    return min(known, default=None if distances else 1.0)


def _distance(one: Square, other: Square) -> float | None:
    if one.rows != other.rows:
        return 1.0
    a, b = (each.corner.double().cpu() for each in (one, other))
    deviation = float(a.std())
    return float((a - b).abs().mean()) / deviation if deviation > _ALIKE * float(a.abs().mean()) else None
