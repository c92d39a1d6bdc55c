"""What each micro-batch brought to the gradient, and what the stated objective would have made of it.

Tensors in, numbers out. The objective of a window is the sum of the losses of all its targets over their number N. A
micro-batch whose targets each have the weight w brings c = w * grad(sum of its losses), so sum(c / w) / N is the
gradient of the objective, at the very weights and with the very noise of the run: nothing is computed a second time.
Two copies of the gradients are kept for that, summed up in float32 or in the gradient's own type where that is wider.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

SKETCH = 512  # numbers that stand for a whole gradient where ranks are compared
CHUNK = 2048 * SKETCH  # elements that are converted to float64 at a time
AS_MEASURED = 100  # a gradient that differs from what arrived by less than this many roundings was left alone
Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Comparison(NamedTuple):
    """The gradient of a step beside the one that the objective wanted, and beside what backward had brought."""

    error: float  # |applied - wanted| / |wanted|
    cosine: float
    scale: float  # <applied, wanted> / |wanted|^2: the factor that explains most of the difference
    noise: float  # relative rounding of this sum in the run's own precision
    kept_error: float  # the same three against what arrived: what the loop did to the gradient after backward
    kept_cosine: float
    kept_scale: float
    norm: float  # of the applied gradient
    arrived_norm: float


class Contributions:
    """The contributions of one window, summed up for each parameter."""

    def __init__(self) -> None:
        self._sums: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.precision = 0.0  # the rounding of one number, relative, in the gradients' own type

    def empty(self) -> bool:
        return not self._sums

    def add(self, parameter: torch.Tensor, gradient: torch.Tensor, weight: float, scale: Any = 1.0) -> None:
        """A part of this parameter's gradient; each of its targets had this weight, times a scaler's factor."""
        with torch.no_grad():
            part = gradient.detach().to(torch.promote_types(gradient.dtype, torch.float32)) / scale
            self.precision = max(self.precision, torch.finfo(gradient.dtype).eps)
            if id(parameter) not in self._sums:
                self._sums[id(parameter)] = (torch.zeros_like(part), torch.zeros_like(part))
            arrived, wanted = self._sums[id(parameter)]
            arrived.add_(part)
            if weight:  # without a target that counts nothing has arrived
                wanted.add_(part / weight)

    def take(self, parameters: Iterable[torch.Tensor]) -> tuple[list[int], list[Triple]]:
        """The places of the parameters that got a contribution, and applied, wanted, arrived of each; once."""
        places, taken = [], []
        for place, parameter in enumerate(parameters):
            if id(parameter) in self._sums:
                arrived, wanted = self._sums.pop(id(parameter))
                applied = torch.zeros_like(arrived) if parameter.grad is None else parameter.grad.detach()
                places.append(place)
                taken.append((applied, wanted, arrived))
        return places, taken


def compare(triples: list[Triple], targets: float, rounding: float) -> Comparison | None:
    """The numbers of a step, or None where one of the gradients is zero or not finite.

    `targets` is N, `rounding` what summing up this many contributions may cost.
    """
    sums = torch.zeros(7, dtype=torch.float64)
    for applied, wanted, arrived in triples:
        for part in _parts(applied):
            g, r, a = _take(applied, part), _take(wanted, part) / targets, _take(arrived, part)
            sums += torch.stack([g @ g, r @ r, a @ a, g @ r, g @ a, (g - r) @ (g - r), (g - a) @ (g - a)]).cpu()
    gg, rr, aa, gr, ga, off, moved = sums.tolist()
    if not (rr > 0 and aa > 0 and math.isfinite(gg + rr + aa)):
        return None
    kept_error = math.sqrt(moved / aa)
    return Comparison(
        error=math.sqrt(off / rr),
        cosine=_cosine(gr, gg, rr),
        scale=gr / rr,
        noise=max(rounding, kept_error) if kept_error < AS_MEASURED * rounding else rounding,
        kept_error=kept_error,
        kept_cosine=_cosine(ga, gg, aa),
        kept_scale=ga / aa,
        norm=math.sqrt(gg),
        arrived_norm=math.sqrt(aa),
    )


def sketch(tensors: Iterable[tuple[int, torch.Tensor]]) -> list[float]:
    """A gradient in a few numbers: linear, the same for every rank, with the norm kept to some per cent.

    Each tensor comes with its parameter's place in the optimizer. Sketches of ranks may be added and subtracted in
    another process, and equal gradients have equal sketches: no collective call of our own enters the user's run.
    """
    total = torch.zeros(SKETCH, dtype=torch.float64)
    for place, tensor in tensors:
        signs = torch.Generator().manual_seed(place)  # our own: the run's random numbers stay as they are
        for part in _parts(tensor):
            numbers = _take(tensor, part).cpu()
            rows = torch.nn.functional.pad(numbers, (0, -len(numbers) % SKETCH)).view(-1, SKETCH)
            total += (rows * (torch.randint(0, 2, rows.shape, generator=signs) * 2 - 1)).sum(0)
    return [float(each) for each in total]


def _parts(tensor: torch.Tensor) -> Iterator[slice]:
    for start in range(0, tensor.numel(), CHUNK):
        yield slice(start, start + CHUNK)


def _take(tensor: torch.Tensor, part: slice) -> torch.Tensor:
    numbers = tensor.detach().reshape(-1)[part]
    return (numbers.cpu() if numbers.device.type == "mps" else numbers).double()  # Apple's GPUs know no float64


def _cosine(product: float, one: float, other: float) -> float:
    return product / math.sqrt(one * other) if one > 0 and other > 0 else 0.0
