"""What must not differ between two legs: random numbers, dropout, precision, and (when asked) BatchNorm."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

try:  # Not in torch's documentation, though stable since 2.0: without it dropout stays, and is noticed.
    from torch.utils._python_dispatch import TorchDispatchMode as _Mode
except ImportError:  # pragma: no cover - no known release
    _Mode = None

_LOW = {torch.float32, torch.float16, torch.bfloat16}
_aten = torch.ops.aten


class Watch:
    """What was seen while a leg ran."""

    def __init__(self) -> None:
        self.silenced = 0  # random masks that were replaced by their mean
        self.leaked = False  # a part of the model computes in less than the precision of the experiment
        self.coarse = False  # and that in 16 bits
        self.denominators: list[float] = []  # of every loss that torch computed


def controlled(watch: Watch, double: bool, dropout_off: bool) -> Any:
    """A context in which dropout passes everything on, and ``.float()`` keeps double precision.

    It works where operators are dispatched, so it sees functional dropout, that of attention, and recomputation too.
    """
    if _Mode is None:  # pragma: no cover
        from contextlib import nullcontext

        return nullcontext()
    return _Controlled(watch, double, dropout_off)


if _Mode is not None:

    class _Controlled(_Mode):  # type: ignore[misc]
        def __init__(self, watch: Watch, double: bool, dropout_off: bool) -> None:
            super().__init__()
            self.watch, self.double, self.dropout_off = watch, double, dropout_off

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """True would load the compiler, seconds of every experiment, though nothing is compiled here."""
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if self.double and kwargs.get("dtype") in _LOW:
                kwargs["dtype"] = torch.float64
            if self.dropout_off and func in _RANDOM_MASKS:
                self.watch.silenced += 1
                return _RANDOM_MASKS[func](args, kwargs)
            answer = func(*args, **kwargs)
            self._note(func, args, kwargs, answer)
            return answer

        def _note(self, func: Any, args: Any, kwargs: Any, answer: Any) -> None:
            if isinstance(answer, torch.Tensor) and answer.dtype in _LOW and answer.dim():
                self.watch.leaked = self.watch.leaked or self.double
                self.watch.coarse = self.watch.coarse or answer.dtype != torch.float32
            if func in _NLL:
                self.watch.denominators.append(_nll_denominator(args, kwargs, answer))
            elif func in _ELEMENTWISE:
                self.watch.denominators.append(float(args[0].numel()))


def _mean_mask(args: Any, kwargs: Any) -> Any:
    """Each element with probability q becomes q itself; whoever divides by q gets ones."""
    q = args[1] if len(args) > 1 and isinstance(args[1], float) else kwargs.get("p", 0.5)
    return args[0].fill_(q)


def _kept(args: Any, kwargs: Any) -> Any:
    return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)


_RANDOM_MASKS: dict[Any, Any] = {_aten.bernoulli_.float: _mean_mask, _aten.native_dropout.default: _kept}
_NLL = {_aten.nll_loss_forward.default, _aten.nll_loss2d_forward.default}
_ELEMENTWISE = {
    _aten.mse_loss.default,
    _aten.binary_cross_entropy.default,
    _aten.binary_cross_entropy_with_logits.default,
    _aten.smooth_l1_loss.default,
}


def _nll_denominator(args: Any, kwargs: Any, answer: Any) -> float:
    """The sum of the weights of the counted targets; torch gives it beside the loss, unless nothing is reduced."""
    _, target, weight, _, ignored = args[:5]
    if weight is None:
        return float((target != ignored).sum())
    return float(weight[target[target != ignored]].sum())


def seed(number: int) -> None:
    random.seed(number)
    torch.manual_seed(number)
    numpy = sys.modules.get("numpy")  # only where the user's code has loaded it
    if numpy is not None:
        numpy.random.seed(number)


def batchnorms(model: torch.nn.Module) -> dict[str, _BatchNorm]:
    """The BatchNorm layers that use the statistics of the batch."""
    found = {name: each for name, each in model.named_modules() if isinstance(each, _BatchNorm)}
    return {name: each for name, each in found.items() if each.training or each.running_mean is None}


def freeze_batchnorm(model: torch.nn.Module) -> None:
    """Running statistics in the place of those of the batch, even if the user's code calls ``model.train()``."""
    for layer in batchnorms(model).values():
        if layer.running_mean is None:
            size = layer.num_features
            like = next(model.parameters())
            layer.running_mean, layer.running_var = like.new_zeros(size), like.new_ones(size)
        layer.eval()
        layer.train = lambda mode=True, layer=layer: layer


class Left(Enum):
    """What the user's code asked for and did not get: leg C has none of it, so A and B must not."""

    CLIPPING = "clipping"
    AUTOCAST = "autocast"
    SCALER = "gradient scaler"


@contextmanager
def undisturbed() -> Iterator[set[Left]]:
    """No clipping, though its norm is measured; no autocast; gradient scalers that scale by one."""
    left: set[Left] = set()
    changes = [*_clipping(left), (torch.autocast, "__init__", _disabled(torch.autocast, left, Left.AUTOCAST))]
    scaler = getattr(torch.amp, "GradScaler", None)  # since torch 2.3; the older one is off without a GPU
    if scaler is not None:
        changes.append((scaler, "__init__", _disabled(scaler, left, Left.SCALER)))
    before = [(home, name, getattr(home, name)) for home, name, _ in changes]
    try:
        for home, name, new in changes:
            setattr(home, name, new)
        yield left
    finally:
        for home, name, old in before:
            setattr(home, name, old)


def _clipping(left: set[Left]) -> list[tuple[Any, str, Any]]:
    def measured_norm(parameters: Any, max_norm: Any, norm_type: float = 2.0, *_: Any, **__: Any) -> torch.Tensor:
        left.add(Left.CLIPPING)
        listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        norms = [each.grad.detach().norm(norm_type) for each in listed if each.grad is not None]
        return torch.stack(norms).norm(norm_type) if norms else torch.tensor(0.0)

    def left_alone(*_: Any, **__: Any) -> None:
        left.add(Left.CLIPPING)

    homes = (torch.nn.utils, torch.nn.utils.clip_grad)
    norms = [(home, "clip_grad_norm_", measured_norm) for home in homes]
    return [*norms, *((home, "clip_grad_value_", left_alone) for home in homes)]


def _disabled(owner: Any, left: set[Left], what: Left) -> Any:
    original = owner.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        if getattr(self, "_enabled", False):
            left.add(what)
            self._enabled = False

    return init
