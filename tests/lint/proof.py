"""Runs a training script before and after a fix and compares its gradients with an independent reference.

A script of a proof is complete and small. It takes from outside ``LENGTHS`` (the counted tokens of each row of each
micro-batch, only used to build the data) and leaves behind ``model``, ``batches`` (the micro-batches in order: inputs
and labels, the ignored ones -100) and ``STEPS`` (micro-batches of a window). The gradients are caught as the optimizer
gets them. The reference knows nothing of the script's loop: the sum of the losses of all counted tokens of a window,
divided once by their number, differentiated directly at the weights that the window ran with.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.optim.optimizer import register_optimizer_step_pre_hook

EQUAL, DIFFERENT = 1e-12, 1e-8  # relative errors in float64; between them nothing is said
VARIABLE = [[2, 11], [5, 1], [1, 1], [9, 12], [3, 2], [12, 4], [1, 8], [2, 2]]
UNIFORM = [[6, 6]] * len(VARIABLE)


class Step(NamedTuple):
    """What one optimizer step saw."""

    weights: dict[str, torch.Tensor]
    gradient: torch.Tensor


def run(
    source: str, lengths: list[list[int]], modules: dict[str, str], given: dict[str, Any] | None = None
) -> tuple[list[Step], dict[str, Any]]:
    """The steps of a script in the order they were taken, and its names afterwards."""
    namespace: dict[str, Any] = {"__name__": "__main__", "LENGTHS": lengths, **(given or {})}
    steps: list[Step] = []

    def catch(optimizer: torch.optim.Optimizer, *_: object) -> None:
        model = namespace["model"]
        weights = {name: each.detach().clone() for name, each in model.named_parameters()}
        steps.append(Step(weights, torch.cat([each.grad.flatten() for each in model.parameters()])))

    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    hook = register_optimizer_step_pre_hook(catch)
    try:
        with _importable(modules):
            exec(compile(source, "train.py", "exec"), namespace)
    finally:
        hook.remove()
        torch.set_default_dtype(torch.float32)
    return steps, namespace


def errors(steps: list[Step], names: dict[str, Any]) -> list[float]:
    """The relative error of each step's gradient against the reference of its window."""
    size, batches, clip = names["STEPS"], names["batches"], names.get("CLIP")
    windows = [batches[at : at + size] for at in range(0, len(batches), size)]
    found = []
    for step, window in zip(steps, windows, strict=False):
        wanted = _reference(names["model"], step.weights, window, names.get("SHIFT", False))
        if clip is not None:
            wanted = wanted * min(1.0, clip / (float(wanted.norm()) + 1e-6))
        found.append(float((step.gradient - wanted).norm() / wanted.norm()))
    return found


def _reference(
    model: torch.nn.Module, weights: dict[str, torch.Tensor], window: list[Any], shift: bool
) -> torch.Tensor:
    leaves = {name: each.clone().requires_grad_() for name, each in weights.items()}
    total, count = torch.zeros(()), 0
    for inputs, labels in window:
        output = torch.func.functional_call(model, leaves, (inputs,))
        logits = getattr(output, "logits", output[0] if isinstance(output, tuple) else output)
        if shift:
            logits, labels = logits[:, :-1], labels[:, 1:]
        total = total + F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        count += int((labels != -100).sum())
    gradients = torch.autograd.grad(total / count, list(leaves.values()))
    return torch.cat([each.flatten() for each in gradients])


@contextmanager
def _importable(modules: dict[str, str]) -> Iterator[None]:
    """Stand-ins for libraries that the tests do not install, and other files of the script's folder."""
    before = {name: sys.modules.get(name) for name in modules}
    try:
        for name, text in modules.items():
            module = ModuleType(name)
            sys.modules[name] = module
            exec(compile(text, f"{name}.py", "exec"), module.__dict__)
        yield
    finally:
        for name, old in before.items():
            sys.modules.pop(name, None)
            if old is not None:
                sys.modules[name] = old
