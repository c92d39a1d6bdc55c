"""What the batches of a BatchNorm layer were like, beside its running statistics.

Tensors in, tensors out: reading a number waits for the GPU, so ``numbers`` reads them all at once, at a window's end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch


class Batch(NamedTuple):
    """One training batch as a BatchNorm layer saw it."""

    elements: int  # values for each channel
    drift: torch.Tensor | None  # mean over channels of |batch mean - running mean| / running deviation
    means: torch.Tensor  # of each channel
    sampling: torch.Tensor | None  # of each channel: the variance of that mean, if samples were drawn independently


def describe(batch: torch.Tensor, mean: torch.Tensor | None, variance: torch.Tensor | None, eps: float) -> Batch:
    """`mean` and `variance` are the running ones before this batch; None where there are none, or none yet."""
    with torch.no_grad():
        values = batch.detach().float().flatten(2) if batch.dim() > 2 else batch.detach().float().unsqueeze(2)
        samples = values.mean(2)
        means = samples.mean(0)
        return Batch(
            elements=values.shape[0] * values.shape[2],
            drift=None if mean is None or variance is None else _drift(means, mean, variance, eps),
            means=means,
            sampling=samples.var(0) / len(samples) if len(samples) > 1 else None,
        )


def spread(batches: list[Batch]) -> torch.Tensor | None:
    """How much the means of micro-batches scatter, as a multiple of what independent samples would give.

    About 1 where samples are drawn independently, far above where a micro-batch holds one kind of sample: then running
    variances miss the part between micro-batches.
    """
    sampling = [batch.sampling for batch in batches if batch.sampling is not None]
    if len(batches) < 2 or len(sampling) < len(batches):
        return None
    between = torch.stack([batch.means for batch in batches]).var(0).mean()
    return between / torch.stack(sampling).mean()


def numbers(tensors: Sequence[torch.Tensor | None]) -> list[float | None]:
    """Scalars as numbers, None where there is none or it is not finite; one transfer for all of a device."""
    found: list[float | None] = [None] * len(tensors)
    by_device: dict[torch.device, list[int]] = {}
    for place, tensor in enumerate(tensors):
        if tensor is not None:
            by_device.setdefault(tensor.device, []).append(place)
    for places in by_device.values():
        read = torch.stack([tensors[place].float() for place in places]).tolist()  # type: ignore[union-attr]
        for place, number in zip(places, read):
            found[place] = number if math.isfinite(number) else None
    return found


def effective_momentum(momentum: float, updates: int) -> float:
    """What `updates` updates of running statistics amount to as one."""
    return 1 - (1 - momentum) ** updates


def _drift(means: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, eps: float) -> torch.Tensor:
    return ((means - mean).abs() / (variance + eps).sqrt()).mean()
