"""The fixes of unshifted-count and unscaled-auxiliary-loss are run: gradients before and after, in double precision."""

from pathlib import Path

import pytest
import torch
from document import read_document
from mended import mended
from proof import DIFFERENT, EQUAL, UNIFORM, VARIABLE, Step, errors, run

CASES = {case.heading: case.source for case in read_document(Path(__file__).parent / "proofs" / "count-fixes.md")}


def test_the_count_after_the_shift_gives_the_mean_over_predicted_tokens() -> None:
    before = CASES["unshifted-count"]
    after = mended("GA108", before)
    for lengths in (VARIABLE, UNIFORM):
        assert min(errors(*run(before, lengths, {}))) >= DIFFERENT, "wrong on any data, equal micro-batches included"
        assert max(errors(*run(after, lengths, {}))) <= EQUAL


def test_a_term_that_is_divided_counts_once_over_the_window() -> None:
    before = CASES["unscaled-auxiliary-loss"]
    after = mended("GA107", before)
    for lengths in (VARIABLE, UNIFORM):
        assert _times(*run(before, lengths, {})) == pytest.approx([4, 4])
        assert _times(*run(after, lengths, {})) == pytest.approx([1, 1])


def _times(steps: list[Step], names: dict[str, object]) -> list[float]:
    """How often the penalty is in each step's gradient, beside the mean over the window's tokens."""
    found = []
    for at, step in enumerate(steps):
        window = names["batches"][at * 4 : at * 4 + 4]  # type: ignore[index]
        tokens = _gradient(names["model"], step, lambda call, window=window: _token_mean(call, window))
        penalty = _gradient(names["model"], step, lambda call: 0.3 * (call.weights["2.weight"] ** 2).mean())
        rest = step.gradient - tokens
        times = float(rest @ penalty / (penalty @ penalty))
        assert float((rest - times * penalty).norm() / penalty.norm()) <= 1e-10, "something else is in it"
        found.append(times)
    return found


class _Call:
    def __init__(self, model: torch.nn.Module, weights: dict[str, torch.Tensor]) -> None:
        self.model, self.weights = model, weights

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(self.model, self.weights, (inputs,))


def _token_mean(call: _Call, window: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    losses = [
        torch.nn.functional.cross_entropy(call(inputs).flatten(0, 1), labels.flatten(), reduction="sum")
        for inputs, labels in window
    ]
    return sum(losses) / sum(int((labels != -100).sum()) for _, labels in window)


def _gradient(model: object, step: Step, objective: object) -> torch.Tensor:
    leaves = {name: each.clone().requires_grad_() for name, each in step.weights.items()}
    loss = objective(_Call(model, leaves))  # type: ignore[operator,arg-type]
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    whole = [g if g is not None else torch.zeros_like(w) for g, w in zip(gradients, leaves.values(), strict=True)]
    return torch.cat([each.flatten() for each in whole])
