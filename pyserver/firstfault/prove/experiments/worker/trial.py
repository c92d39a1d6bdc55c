"""One probe under one precision: builds the same model again and again, and runs the user's recipe on it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from firstfault.prove.experiments.worker.control import Watch, controlled, freeze_batchnorm, seed
from firstfault.prove.experiments.worker.data import copied
from firstfault.prove.experiments.worker.protocol import Probe, ProbeFault, call, load

Recipe = Callable[[Any, list[Any]], Any]


class Leg(NamedTuple):
    """What the user's recipe left behind after one window."""

    gradient: torch.Tensor
    steps: int  # of an optimizer that holds parameters of the model
    rates: list[float]  # learning rates at the end
    buffers: dict[str, torch.Tensor]
    again: float | None  # how far the next window is off one that starts with no gradients
    watch: Watch


class Trial:
    """The probe, its precision, and the weights that every leg starts from."""

    def __init__(self, path: str, dtype: torch.dtype, wrap: Callable[[Any], Any] | None = None) -> None:
        self.path, self.dtype, self.wrap = path, dtype, wrap
        self.state: dict[str, torch.Tensor] = {}
        model = self.model(load(path), 1, live=True)
        self.state = {name: each.detach().clone() for name, each in model.state_dict().items()}
        trained = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
        self.names = [(name, each.numel()) for name, each in trained]
        if not self.names:
            raise ProbeFault("build() gives a model without trainable parameters.")

    @property
    def double(self) -> bool:
        return bool(self.dtype == torch.float64)

    def model(self, probe: Probe, window: int, live: bool) -> torch.nn.Module:
        """A fresh model on the CPU; its BatchNorm frozen unless it is what is asked about."""
        seed(0)
        model = call("build()", probe.build, *([window] if _takes_window(probe.build) else []))
        if not isinstance(model, torch.nn.Module):
            raise ProbeFault(f"build() gives no torch.nn.Module but {_kind(model)}.")
        if not model.training:  # as from_pretrained() leaves it; a training loop calls train() first
            model.train()
        model = model.to("cpu", self.dtype)
        self._start_equal(model)
        if not live:
            freeze_batchnorm(model)
        return model

    def _start_equal(self, model: torch.nn.Module) -> None:
        if not self.state:
            return
        try:
            model.load_state_dict(self.state, strict=True)
        except (RuntimeError, KeyError) as error:
            raise ProbeFault("build() gives another model at each call.") from error


def run(
    trial: Trial,
    micro_batches: list[Any],
    live: bool = False,
    dropout: bool = False,
    start: int = 0,
    twice: bool = False,
) -> Leg:
    """One window through the user's recipe; ``live`` lets BatchNorm use its batches, ``twice`` runs a second window."""
    watch, probe = Watch(), load(trial.path)
    model = trial.model(probe, len(micro_batches), live)
    recipe = probe.accumulate or plain_recipe
    seed(start)
    with controlled(watch, trial.double, dropout_off=not dropout):
        first = _window(trial, recipe, model, micro_batches)
        buffers = {name: each.detach().clone() for name, each in model.named_buffers()}
        again = _second_window(trial, probe, recipe, model, micro_batches) if twice and first.steps else None
    return Leg(first.gradient, first.steps, first.rates, buffers, again, watch)


def plain_recipe(model: Any, micro_batches: list[Any]) -> None:
    """What most scripts do with a model that computes its own loss; used where the probe has no ``accumulate()``."""
    for batch in micro_batches:
        loss = getattr(model(**batch), "loss", None) if isinstance(batch, Mapping) else None
        if loss is None:
            raise ProbeFault("The probe has no accumulate(model, micro_batches), and the model gives no .loss.")
        (loss / len(micro_batches)).backward()


class _Window(NamedTuple):
    gradient: torch.Tensor
    steps: int
    rates: list[float]


def _window(trial: Trial, recipe: Recipe, model: torch.nn.Module, micro_batches: list[Any]) -> _Window:
    batches = [copied(each, trial.dtype) for each in micro_batches]
    caught: list[torch.Tensor] = []
    optimizers: dict[int, torch.optim.Optimizer] = {}
    steps = 0

    def at_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        nonlocal steps
        mine = {id(each) for each in model.parameters()}
        if any(id(each) in mine for group in optimizer.param_groups for each in group["params"]):
            steps += 1
            optimizers[id(optimizer)] = optimizer
            if not caught:
                caught.append(gradient_of(model))

    hook = register_optimizer_step_pre_hook(at_step)
    try:
        call("accumulate()", recipe, _wrapped(trial, model), batches)
    finally:
        hook.remove()
    if not caught and all(each.grad is None for each in model.parameters()):
        raise ProbeFault(
            "After accumulate() no parameter has a gradient, and no torch optimizer stepped: "
            "let it end with backward(), or before the gradients are cleared."
        )
    rates = [float(group["lr"]) for each in optimizers.values() for group in each.param_groups if "lr" in group]
    return _Window(caught[0] if caught else gradient_of(model), steps, rates)


def _wrapped(trial: Trial, model: torch.nn.Module) -> Any:
    if trial.wrap is None:
        return model
    own = load(trial.path).wrap
    return call("wrap()", own, model) if own else trial.wrap(model)


def _second_window(
    trial: Trial, probe: Probe, recipe: Recipe, model: torch.nn.Module, micro_batches: list[Any]
) -> float | None:
    """The next window on the same model against the same window on a model with its weights and no gradients."""
    weights = {name: each.detach().clone() for name, each in model.state_dict().items()}
    clean = trial.model(probe, len(micro_batches), live=False)
    clean.load_state_dict(weights)
    _take_buffers(model, clean)
    seed(1)
    wanted = _window(trial, recipe, clean, micro_batches).gradient
    seed(1)
    found = _window(trial, recipe, model, micro_batches).gradient
    size = float(wanted.norm())
    return float((found - wanted).norm()) / size if size else None


def _take_buffers(model: torch.nn.Module, clean: torch.nn.Module) -> None:
    """Those that no state dictionary holds too: a model may have made them anew, in another precision."""
    owned = dict(clean.named_buffers())
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name in owned and owned[name].shape == buffer.shape:
                owned[name].copy_(buffer)


def gradient_of(model: torch.nn.Module) -> torch.Tensor:
    """All gradients as one vector in double precision; what got none counts as zero."""
    parts = [
        (each.grad if each.grad is not None else torch.zeros_like(each)).detach().to_dense().double().flatten()
        for each in model.parameters()
        if each.requires_grad
    ]
    return torch.cat(parts)


def _takes_window(build: Callable[..., Any]) -> bool:
    try:
        kinds = [each.kind for each in inspect.signature(build).parameters.values()]
    except (TypeError, ValueError):
        return False
    return any(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
