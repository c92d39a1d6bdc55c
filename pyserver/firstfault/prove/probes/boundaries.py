"""Where a micro-batch and a window begin and end: backward, optimizer step, and the gradient scaler's factor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import optimizer as optimizers

from firstfault.prove.probes.patching import Undo, all_of, wrap
from firstfault.prove.probes.places import calling_line
from firstfault.prove.record import Record

Call = Callable[..., Any]


def install(record: Record) -> Undo:
    undone = [wrap(torch.autograd, "backward", lambda original: _backward(record, original))]
    undone += _step_hooks(record)
    for scaler in scaler_classes():
        undone.append(wrap(scaler, "scale", lambda original: _scale(record, original)))
        undone.append(wrap(scaler, "step", lambda original: _scaler_step(record, original)))
    return all_of(undone)


def scaler_classes() -> list[type]:
    """The gradient scaler of this torch; until 2.2 the one of CUDA is a class of its own."""
    found = [getattr(torch.amp, "GradScaler", None), getattr(torch.cuda.amp, "GradScaler", None)]
    return list({each: None for each in found if each is not None and "scale" in vars(each)})


def _backward(record: Record, original: Call) -> Call:
    def backward(*arguments: Any, **named: Any) -> Any:
        if record.muted or record.depth:  # A checkpoint with reentry runs backward within backward.
            return original(*arguments, **named)
        record.begin_backward(arguments[0] if arguments else named.get("tensors"), calling_line())
        record.depth += 1
        try:
            answer = original(*arguments, **named)
        finally:
            record.depth -= 1
        record.end_backward()
        record.scale = 1.0
        return answer

    return backward


def _step_hooks(record: Record) -> list[Undo]:
    before = getattr(optimizers, "register_optimizer_step_pre_hook", None)
    after = getattr(optimizers, "register_optimizer_step_post_hook", None)
    if before is None or after is None:
        record.not_measured("boundaries", "this torch has no global hooks around optimizer steps")
        return []
    hooks = [before(_before_step(record)), after(lambda optimizer, *_: record.end_step(optimizer))]
    return [hook.remove for hook in hooks]


def _before_step(record: Record) -> Call:
    def before(optimizer: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        closure = named.get("closure") or (arguments[1] if len(arguments) > 1 else None)
        if not callable(closure):
            record.begin_step(optimizer)
            return None
        # The gradients are made inside of the step: Lightning and LBFGS hand over how.
        ours = _closure(record, optimizer, closure)
        if "closure" in named:
            return arguments, {**named, "closure": ours}
        return (arguments[0], ours, *arguments[2:]), named

    return before


def _closure(record: Record, optimizer: Any, closure: Call) -> Call:
    runs = 0

    def run(*arguments: Any, **named: Any) -> Any:
        nonlocal runs
        answer = closure(*arguments, **named)
        runs += 1
        if runs == 1:
            record.begin_step(optimizer)
        elif runs == 2:
            record.not_measured("boundaries", "the optimizer runs its closure several times in one step")
        return answer

    return run


def _scale(record: Record, original: Call) -> Call:
    def scale(scaler: Any, *arguments: Any, **named: Any) -> Any:
        answer = original(scaler, *arguments, **named)
        if scaler.is_enabled():
            factor = getattr(scaler, "_scale", None)  # the tensor: reading the number would wait for the GPU
            record.scale = factor.detach().clone() if isinstance(factor, torch.Tensor) else scaler.get_scale()
        return answer

    return scale


def _scaler_step(record: Record, original: Call) -> Call:
    def step(scaler: Any, optimizer: Any, *arguments: Any, **named: Any) -> Any:
        steps = record.steps
        answer = original(scaler, optimizer, *arguments, **named)
        if record.steps == steps:  # Infinite gradients: the scaler left the step out.
            record.skip_step(optimizer)
        return answer

    return step
