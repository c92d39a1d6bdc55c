"""The gradient of a step beside the wanted one, as a run tells it, against gradients that autograd makes here."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from measuring import Warm
from tiny import language_model, text

from firstfault.prove.gradients import Gradient, difference, gradient
from firstfault.prove.measured import Window

SCRIPTS = Path(__file__).parent


def test_the_distance_is_that_of_the_gradients(process: Warm) -> None:
    seen, window = _first(process, "faulty/ga101_mean_of_means.py")
    applied, wanted = _beside(text()[:4])
    assert seen.error == pytest.approx(float((applied - wanted).norm() / wanted.norm()), rel=1e-4)
    assert seen.cosine == pytest.approx(float(F.cosine_similarity(applied, wanted, dim=0)), rel=1e-4)
    assert seen.kept_error == 0 and seen.apart == 0
    assert f"{100 * seen.error:.3g}%" in difference(window)


def test_ranks_are_joined_through_sketches(process: Warm) -> None:
    seen, window = _first(process, "faulty/ga301_rank_tokens.py", ranks=2)
    applied, wanted = _beside(text()[:2])
    assert seen.error == pytest.approx(float((applied - wanted).norm() / wanted.norm()), rel=0.1)
    assert seen.cosine == pytest.approx(float(F.cosine_similarity(applied, wanted, dim=0)), abs=0.1)
    assert seen.apart == 0, "every rank applies the same"
    assert seen.kept_error < 1e-6, "what arrived is averaged over the ranks"
    assert difference(window)


def test_ranks_that_are_right_are_equal_to_rounding(process: Warm) -> None:
    seen, window = _first(process, "right/ranks.py", ranks=2)
    assert seen.error < 1e-6 and seen.apart == 0
    assert difference(window) == ""


def test_ranks_that_apply_gradients_of_their_own_are_apart(process: Warm) -> None:
    seen, _ = _first(process, "faulty/ga303_no_sync_on_step.py", ranks=2)
    assert seen.apart > 0.1


def test_a_script_that_divides_its_gradients_is_right(process: Warm) -> None:
    seen, window = _first(process, "right/rescaled_before_step.py")
    assert seen.error < 1e-6 and difference(window) == ""
    assert seen.kept_cosine == pytest.approx(1) and seen.kept_scale < 0.1


def test_clips_between_micro_batches_leave_the_direction(process: Warm) -> None:
    """What they shorten is not what the losses did: no distance is told."""
    _, window = _first(process, "faulty/ga209_clip_each.py")
    assert "cosine of" in difference(window) and "%" not in difference(window)


@pytest.mark.parametrize(
    ("error", "noise", "differs"), [(1e-6, 2e-7, False), (5e-5, 2e-7, True), (0.02, 0.015, False), (0.3, 0.015, True)]
)
def test_a_difference_is_told_beyond_rounding(error: float, noise: float, differs: bool) -> None:
    assert Gradient(error, 1.0, 1.0, noise, 0.0, 1.0, 1.0, 0.0).differs is differs


def test_a_model_of_sixteen_bits(process: Warm, tmp_path: Path) -> None:
    """Right and wrong are told apart though the gradients are coarse."""
    for script, differs in (("right/sum_over_window.py", False), ("faulty/ga101_mean_of_means.py", True)):
        source = (SCRIPTS / script).read_text(encoding="utf-8")
        coarse = tmp_path / "coarse.py"
        coarse.write_text(source.replace("language_model()\n", "language_model().bfloat16()\n"), encoding="utf-8")
        found = gradient(process.measure(coarse).complete[0])
        assert found is not None and found.noise > 1e-3 and found.differs is differs, script


def _first(process: Warm, script: str, ranks: int = 1) -> tuple[Gradient, Window]:
    window = process.measure(SCRIPTS / script, ranks=ranks).complete[0]
    found = gradient(window)
    assert found is not None
    return found, window


def _beside(batches: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean of the means, and the mean."""
    model = language_model().double()
    losses = [
        F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="none")
        for ids, labels in batches
    ]
    counts = [int((labels != -100).sum()) for _, labels in batches]
    means = torch.stack([loss.sum() / count for loss, count in zip(losses, counts, strict=True)]).mean()
    mean = torch.stack([loss.sum() for loss in losses]).sum() / sum(counts)
    parameters = list(model.parameters())
    applied, wanted = (torch.autograd.grad(each, parameters, retain_graph=True) for each in (means, mean))
    return torch.cat([each.flatten() for each in applied]), torch.cat([each.flatten() for each in wanted])
