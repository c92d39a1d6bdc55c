"""The pure part of the BatchNorm probe, beside what torch's own layer does."""

import pytest
import torch

from firstfault.prove.probes.statistics import describe, effective_momentum, numbers, spread

torch.set_num_threads(1)


@pytest.mark.parametrize(("updates", "wanted"), [(1, 0.1), (2, 0.19), (4, 0.3439), (8, 0.5695), (32, 0.9657)])
def test_the_effective_momentum_is_what_the_updates_do(updates: int, wanted: float) -> None:
    layer, batch = torch.nn.BatchNorm1d(1), torch.tensor([[1.0], [3.0]])
    for _ in range(updates):
        layer(batch)
    assert effective_momentum(0.1, updates) == pytest.approx(wanted, abs=1e-4)
    assert float(layer.running_mean) == pytest.approx(2 * effective_momentum(0.1, updates), rel=1e-5)


def test_drift_is_the_distance_of_means_in_deviations() -> None:
    batch = torch.zeros(4, 2, 3, 3)
    batch[:, 1] = 6.0
    seen = describe(batch, torch.tensor([0.0, 0.0]), torch.tensor([4.0, 4.0]), 0.0)
    assert seen.elements == 36 and numbers([seen.drift]) == [pytest.approx((0 + 3) / 2)]
    assert torch.equal(seen.means, torch.tensor([0.0, 6.0]))


def test_elements_of_flat_batches() -> None:
    assert describe(torch.zeros(2, 5), None, None, 0.0).elements == 2
    assert describe(torch.zeros(2, 5), None, None, 0.0).drift is None


def test_the_spread_of_independent_samples_is_about_one() -> None:
    torch.manual_seed(0)
    batches = [describe(torch.randn(16, 32, 4), None, None, 0.0) for _ in range(8)]
    assert numbers([spread(batches)]) == [pytest.approx(1, abs=0.3)]


def test_the_spread_of_sorted_samples_is_large() -> None:
    torch.manual_seed(0)
    batches = [describe(torch.randn(16, 8) + 5 * kind, None, None, 0.0) for kind in range(4)]
    assert (spread(batches) or 0) > 50


def test_the_spread_needs_several_samples_in_several_batches() -> None:
    one = describe(torch.randn(1, 3, 2, 2), None, None, 0.0)
    assert spread([one, one]) is None and spread([]) is None


def test_numbers_that_are_not_finite_or_not_there_are_none() -> None:
    read = numbers([torch.tensor(2.0), None, torch.tensor(float("nan")), torch.tensor(3.0, dtype=torch.float64)])
    assert read == [2.0, None, None, 3.0]
