"""The fix of an average that was updated too often is run: the average takes in the weights of each step once."""

from pathlib import Path

import torch
from document import read_document
from mended import mended
from proof import EQUAL, UNIFORM, Step, run

PROOFS = Path(__file__).parent / "proofs"


def test_the_average_takes_in_each_step_once() -> None:
    (case,) = read_document(PROOFS / "ema-per-micro-batch.md")
    assert _error(case.source) > 1e-3
    assert _error(mended("GA212", case.source)) <= EQUAL


def _error(source: str) -> float:
    """How far the script's average is from one that follows the recorded steps."""
    steps, names = run(source, UNIFORM, {})
    final = {name: each.detach() for name, each in names["model"].named_parameters()}
    wanted = _average([*steps, Step(final, torch.zeros(0))], names["DECAY"])
    found = names["ema"].shadow
    return max(float((found[name] - each).norm() / each.norm()) for name, each in wanted.items())


def _average(steps: list[Step], decay: float) -> dict[str, torch.Tensor]:
    average = dict(steps[0].weights)
    for step in steps[1:]:
        average = {name: decay * each + (1 - decay) * step.weights[name] for name, each in average.items()}
    return average
