"""The pure part of the gradient probe: contributions of micro-batches beside a gradient that autograd made directly."""

import math

import pytest
import torch
import torch.nn.functional as F

from firstfault.prove.probes.contributions import Comparison, Contributions, compare, sketch

torch.set_num_threads(1)
COUNTS = (10, 90, 3, 41)
K, N = len(COUNTS), sum(COUNTS)


def _window(dtype: torch.dtype = torch.float64) -> tuple[torch.nn.Linear, list[tuple[torch.Tensor, torch.Tensor]]]:
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 7).to(dtype)
    return model, [(torch.randn(count, 5, dtype=dtype), torch.randint(0, 7, (count,))) for count in COUNTS]


def _run(weights: list[float], dtype: torch.dtype = torch.float64, scale: float = 1.0) -> Contributions:
    """Each micro-batch is backpropagated with this weight of a target, as a loop would do it."""
    model, batches = _window(dtype)
    seen = Contributions()
    weight = 0.0
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient, parameter=parameter: seen.add(parameter, gradient, weight, scale))
    for (inputs, labels), each in zip(batches, weights, strict=True):
        weight = each
        (F.cross_entropy(model(inputs), labels, reduction="sum") * each * scale).backward()
    seen.parameters = list(model.parameters())
    return seen


def _compare(seen: Contributions) -> Comparison:
    found = compare(seen.take(seen.parameters)[1], N, seen.precision * math.sqrt(K))
    assert found is not None
    return found


def _objective() -> torch.Tensor:
    model, batches = _window()
    sum(F.cross_entropy(model(i), labels, reduction="sum") for i, labels in batches).div(N).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def test_the_wanted_gradient_is_the_one_of_the_objective() -> None:
    seen = _run([1 / (K * count) for count in COUNTS])
    wanted = torch.cat([wanted.flatten() / N for _, wanted, _ in seen.take(seen.parameters)[1]])
    assert float((wanted - _objective()).norm() / wanted.norm()) < 1e-14


def test_a_right_window_is_equal_to_rounding() -> None:
    found = _compare(_run([1 / N] * K))
    assert found.error < 1e-14 and found.cosine == pytest.approx(1) and found.scale == pytest.approx(1)
    assert found.kept_error < 1e-14


def test_a_mean_of_means_differs_in_direction() -> None:
    found = _compare(_run([1 / (K * count) for count in COUNTS]))
    applied = torch.cat([p.grad.flatten() for p in _run([1 / (K * c) for c in COUNTS]).parameters])
    wanted = _objective()
    assert found.error == pytest.approx(float((applied - wanted).norm() / wanted.norm()))
    assert found.cosine == pytest.approx(float(F.cosine_similarity(applied, wanted, dim=0)))
    assert found.error > 0.05 and found.cosine < 0.999 and found.kept_error < 1e-14


@pytest.mark.parametrize("factor", [K, 1 / K, 0.5])
def test_a_wrong_scale_has_cosine_one(factor: float) -> None:
    found = _compare(_run([factor / N] * K))
    assert found.scale == pytest.approx(factor) and found.cosine == pytest.approx(1, abs=1e-12)
    assert found.error == pytest.approx(abs(factor - 1))


def test_what_the_loop_did_after_backward_is_told_apart() -> None:
    seen = _run([1 / N] * K)
    for parameter in seen.parameters:
        parameter.grad.mul_(0.25)
    found = _compare(seen)
    assert found.kept_scale == pytest.approx(0.25) and found.kept_cosine == pytest.approx(1)


def test_the_noise_is_that_of_the_runs_precision() -> None:
    double, single = (_compare(_run([1 / N] * K, dtype)) for dtype in (torch.float64, torch.float32))
    assert double.noise < 1e-14 < 1e-8 < single.noise < 1e-5
    assert single.error <= 10 * single.noise


def test_the_scale_of_a_gradient_scaler_is_divided_out() -> None:
    scaled = _run([1 / N] * K, torch.float32, scale=2.0**16)
    for parameter in scaled.parameters:  # as unscale_ leaves it
        parameter.grad.div_(2.0**16)
    found = _compare(scaled)
    assert found.error < 1e-6 and found.kept_error < 1e-6


def test_gradients_that_are_not_finite_are_not_compared() -> None:
    seen = _run([1 / N] * K)
    seen.parameters[0].grad[0, 0] = math.inf
    assert compare(seen.take(seen.parameters)[1], N, 1e-7) is None
    assert compare([], N, 1e-7) is None


def test_a_wiped_gradient_was_not_kept() -> None:
    seen = _run([1 / N] * K)
    for parameter in seen.parameters:
        parameter.grad = None
    found = _compare(seen)
    assert found.error == pytest.approx(1) and found.cosine == 0 and found.kept_error == pytest.approx(1)


def test_a_window_is_taken_once() -> None:
    seen = _run([1 / N] * K)
    assert len(seen.take(seen.parameters)[1]) == 2
    assert seen.take(seen.parameters) == ([], [])


def test_sketches_add_up_and_tell_how_far_gradients_are_apart() -> None:
    torch.manual_seed(1)
    one, other = torch.randn(3000, dtype=torch.float64), torch.randn(3000, dtype=torch.float64)
    a, b, both = (torch.tensor(sketch([(0, each)]), dtype=torch.float64) for each in (one, other, one + other))
    assert torch.allclose(a + b, both, atol=1e-9)
    assert float((a - b).norm()) == pytest.approx(float((one - other).norm()), rel=0.1)
    assert sketch([(0, one)]) == sketch([(0, one.clone())]) != sketch([(1, one)])


def test_a_sketch_leaves_the_runs_random_numbers_alone() -> None:
    torch.manual_seed(3)
    wanted = torch.rand(4)
    torch.manual_seed(3)
    sketch([(0, torch.ones(9))])
    assert torch.equal(torch.rand(4), wanted)
