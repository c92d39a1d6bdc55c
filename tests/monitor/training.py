"""Small loops that the monitor watches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Values = list[tuple[int, dict[str, float]]]


class Logged:
    """What a ``log`` was called with."""

    def __init__(self) -> None:
        self.calls: Values = []

    def __call__(self, values: dict[str, float], step: int) -> None:
        self.calls.append((step, values))

    def all(self, name: str) -> list[float]:
        return [values[name] for _, values in self.calls]


def tagger(norm: nn.Module | None = None) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), norm or nn.Identity(), nn.Tanh(), nn.Linear(8, 5))


def batch(size: int, shift: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(size, 6) + shift, torch.randint(0, 5, (size,))


def mean(model: nn.Module, micro_batches: Sequence[Any]) -> list[torch.Tensor]:
    """A mean of means."""
    return [F.cross_entropy(model(x), y) / len(micro_batches) for x, y in micro_batches]


def over_all(model: nn.Module, micro_batches: Sequence[Any]) -> list[torch.Tensor]:
    """A mean over all targets of the window."""
    targets = sum(len(y) for _, y in micro_batches)
    return [F.cross_entropy(model(x), y, reduction="sum") / targets for x, y in micro_batches]


def train(
    model: nn.Module,
    sizes: Sequence[Sequence[int]],
    losses: Callable[[nn.Module, Sequence[Any]], list[torch.Tensor]] = mean,
    before_step: Callable[[], Any] = lambda: None,
) -> None:
    """One window for each row of sizes; the losses of a window are made one by one, each with its backward."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for row in sizes:
        for loss in losses(model, [batch(size) for size in row]):
            loss.backward()
        before_step()
        optimizer.step()
        optimizer.zero_grad()
