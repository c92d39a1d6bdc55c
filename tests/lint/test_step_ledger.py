"""Fixes about windows are run: how often the optimizer steps, and whether each step has the whole window's gradient."""

from pathlib import Path
from typing import Any

import pytest
import torch
from document import Case, read_document
from proof import DIFFERENT, EQUAL, Step, run

from firstfault.lint import Workspace, lint
from firstfault.text import apply_edits

PROOFS = Path(__file__).parent / "proofs"
CASES, SCHEDULES = read_document(PROOFS / "step-ledger.md"), read_document(PROOFS / "schedules.md")
ACCELERATE = '''
from contextlib import contextmanager


class Accelerator:
    """One process: the wrapped optimizer steps and clears where a window ends, and nowhere else."""

    def __init__(self, gradient_accumulation_steps):
        self.steps, self.seen, self.sync_gradients = gradient_accumulation_steps, 0, False

    def prepare(self, model, optimizer, loader):
        return model, Optimizer(self, optimizer), loader

    @contextmanager
    def accumulate(self, model):
        self.seen += 1
        self.sync_gradients = self.seen % self.steps == 0
        yield

    def backward(self, loss):
        (loss / self.steps).backward()


class Optimizer:
    def __init__(self, accelerator, optimizer):
        self.accelerator, self.optimizer = accelerator, optimizer

    def step(self):
        if self.accelerator.sync_gradients:
            self.optimizer.step()

    def zero_grad(self):
        if self.accelerator.sync_gradients:
            self.optimizer.zero_grad()
'''


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.heading)
def test_every_step_has_the_gradient_of_its_window(case: Case) -> None:
    modules = {"accelerate": ACCELERATE} if "accelerate" in case.source else {}
    before, after = run(case.source, [], modules), run(_fixed(case), [], modules)
    assert _is_faulty(*before), "the script is right before the fix"
    assert len(after[0]) == _wanted_steps(after[1])
    assert max(_errors(*after)) <= EQUAL, _errors(*after)


@pytest.mark.parametrize("case", SCHEDULES, ids=lambda case: case.heading)
def test_a_schedule_is_as_long_as_the_optimizer_steps(case: Case) -> None:
    def ends(source: str) -> tuple[int, int, int]:
        steps, names = run(source, [], {})
        return len(steps), names["scheduler"].last_epoch, names["scheduler"].T_max

    taken, scheduled, length = ends(_fixed(case))
    assert taken == scheduled == length > 2
    assert len(set(ends(case.source))) > 1, "the script is right before the fix"


def _is_faulty(steps: list[Step], names: dict[str, Any]) -> bool:
    return len(steps) != _wanted_steps(names) or max(_errors(steps, names)) >= DIFFERENT


def _wanted_steps(names: dict[str, Any]) -> int:
    return int(names["EPOCHS"]) * -(-len(names["loader"]) // int(names["STEPS"]))


def _errors(steps: list[Step], names: dict[str, Any]) -> list[float]:
    """Each step against the mean loss of its window's micro-batches, differentiated at the weights it ran with."""
    size, loader = names["STEPS"], list(names["loader"])
    windows = [loader[at : at + size] for at in range(0, len(loader), size)] * names["EPOCHS"]
    found = []
    for step, window in zip(steps, windows, strict=False):
        leaves = {name: each.clone().requires_grad_() for name, each in step.weights.items()}
        losses = [
            names["criterion"](torch.func.functional_call(names["model"], leaves, (inputs,)), targets)
            for inputs, targets in window
        ]
        gradients = torch.autograd.grad(sum(losses) / len(window), list(leaves.values()))
        wanted = torch.cat([each.flatten() for each in gradients])
        found.append(float((step.gradient - wanted).norm() / wanted.norm()))
    return found


def _fixed(case: Case) -> str:
    code = case.heading.partition(" ")[0]
    found = [each for each in lint(case.source, "/project/train.py", Workspace()) or [] if each.code == code]
    assert found and found[0].fixes, "no fix is offered"
    after = apply_edits(case.source, found[0].fixes[0].edits)
    again = [each for each in lint(after, "/project/train.py", Workspace()) or [] if each.code == code]
    assert not again, "the fixed script is found faulty"
    return after
