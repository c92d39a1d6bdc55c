"""``with monitor(model):`` on small loops: what it measures, what it warns of, and when it says nothing."""

from __future__ import annotations

import logging

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from firstfault.monitor import monitor
from monitor.training import Logged, batch, mean, over_all, tagger, train

torch.set_num_threads(1)
UNEQUAL = [[10, 90]] * 3


@pytest.fixture
def log() -> Logged:
    return Logged()


def codes(watching: monitor) -> list[str]:
    return [each.partition(":")[0] for each in watching.warnings]


# ------------------------------------------------------------------------------------------------- weights of targets


def test_a_mean_of_means(log: Logged, caplog: pytest.LogCaptureFixture) -> None:
    model = tagger()
    with monitor(model, every=1, log=log) as watching:
        train(model, UNEQUAL)
    assert log.all("weight_ratio") == [pytest.approx(9)] * 3 and log.all("mass") == [pytest.approx(1)] * 3
    assert [step for step, _ in log.calls] == [1, 2, 3]
    assert log.calls[-1][1]["targets"] == 100 and log.calls[-1][1]["micro_batches_per_step"] == 2
    assert codes(watching) == ["GA101"]
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("firstfault", logging.WARNING)
    assert "GA101: One target weighs up to 9 times as much as another" in record.getMessage()


def test_a_mean_over_all_targets(log: Logged) -> None:
    model = tagger()
    with monitor(model, every=1, log=log) as watching:
        train(model, UNEQUAL, over_all)
    assert log.all("weight_ratio") == [pytest.approx(1)] * 3 and log.all("mass") == [pytest.approx(1)] * 3
    assert not watching.warnings


def test_a_loss_that_is_not_divided(log: Logged) -> None:
    model = tagger()
    with monitor(model, every=1, log=log) as watching:
        train(model, [[20, 20, 20]] * 3, lambda model, window: [3 * each for each in mean(model, window)])
    assert log.all("mass") == [pytest.approx(3)] * 3
    assert codes(watching) == ["GA102"]


def test_a_factor_that_is_no_known_fault_is_told_once(log: Logged) -> None:
    model = tagger()
    with monitor(model, every=1, log=log) as watching:
        train(model, [[20, 20]] * 4, lambda model, window: [0.7 * each for each in mean(model, window)])
    assert log.all("mass") == [pytest.approx(0.7)] * 4
    assert codes(watching) == ["GA102"] and "adds up to 0.7 over the 2 micro-batches" in watching.warnings[0]


def test_gradients_that_are_divided_before_the_step(log: Logged) -> None:
    model = tagger()

    def divide() -> None:
        for each in model.parameters():
            each.grad.mul_(1 / 100)
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)

    def sums(model: nn.Module, window: list) -> list[torch.Tensor]:
        return [F.cross_entropy(model(x), y, reduction="sum") for x, y in window]

    with monitor(model, every=1, log=log) as watching:
        train(model, UNEQUAL, sums, divide)
    assert log.all("mass") == [pytest.approx(1, rel=1e-4)] * 3
    assert not watching.warnings


@pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="until torch 2.2 it works on a GPU alone")
def test_a_gradient_scaler(log: Logged) -> None:
    model = tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with monitor(model, every=1, log=log) as watching:
        for step in range(4):
            for loss in mean(model, [batch(20), batch(20)]):
                scaler.scale(loss * (float("inf") if step == 1 else 1)).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert log.all("mass") == [pytest.approx(1, rel=1e-4)] * 3
    assert log.calls[-1][1]["steps"] == 3 and log.calls[-1][1]["skipped_steps"] == 1
    assert not watching.warnings


def test_a_micro_batch_without_targets() -> None:
    model = tagger()

    def masked(model: nn.Module, window: list) -> list[torch.Tensor]:
        (x, y), (masked_x, masked_y) = window
        nothing = torch.full_like(masked_y, -100)
        return [F.cross_entropy(model(x), y), F.cross_entropy(model(masked_x), nothing)]

    with monitor(model) as watching:
        train(model, [[4, 4]], masked)
    assert "GA109" in codes(watching)
    assert "Micro-batch 2 of optimizer step 1 had no target" in watching.warnings[-1]


def test_losses_that_are_not_seen_are_said_not_to_be_measured(log: Logged) -> None:
    model = tagger()
    with monitor(model, log=log) as watching:
        train(model, [[4, 4]] * 3, lambda model, window: [model(x).pow(2).mean() for x, _ in window])
    (sentence,) = watching.warnings
    assert sentence.startswith("not measured: the weight of targets: No watched loss function took part")
    assert "mass" not in watching.values and watching.values["micro_batches_per_step"] == 2


# ------------------------------------------------------------------------------------------------- sampling


def test_one_step_in_every_is_measured_and_all_are_counted(log: Logged) -> None:
    model = tagger()
    with monitor(model, every=5, log=log):
        train(model, [[10, 90]] * 12, over_all)
    assert [step for step, _ in log.calls] == [1, 2, 6, 11]
    assert log.all("steps") == [1, 2, 6, 11] and log.all("micro_batches") == [2, 4, 12, 22]
    assert log.all("micro_batches_per_step") == [2] * 4


def test_a_fault_that_begins_later_is_found() -> None:
    model = tagger()
    with monitor(model, every=3) as watching:
        train(model, [[10, 90]] * 3, over_all)
        assert not watching.warnings
        train(model, [[10, 90]] * 3, mean)
    assert codes(watching) == ["GA101"]


# ------------------------------------------------------------------------------------------------- BatchNorm


def test_batchnorm(log: Logged) -> None:
    model = tagger(nn.BatchNorm1d(8))
    with monitor(model, every=1, log=log) as watching:
        train(model, [[8, 8]] * 3)
    assert log.all("batchnorm_elements") == [8] * 3
    assert log.calls[0][1]["batchnorm_drift"] > 0
    assert codes(watching) == ["BN502"] and "from 8 values for each channel" in watching.warnings[0]


def test_batches_of_one_kind_each() -> None:
    model = tagger(nn.BatchNorm1d(8))

    def sorted_losses(model: nn.Module, window: list) -> list[torch.Tensor]:
        return mean(model, [(x + 9 * kind, y) for kind, (x, y) in enumerate(window)])

    with monitor(model, every=1) as watching:
        train(model, [[32, 32]] * 3, sorted_losses)
    assert codes(watching) == ["BN501"]
    assert "times as much as those of independent samples would" in watching.warnings[0]


def test_drift_is_that_of_the_layer(log: Logged) -> None:
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 5))
    model[0](torch.randn(64, 6))
    mean_before, variance_before = model[0].running_mean.clone(), model[0].running_var.clone()
    torch.manual_seed(1)
    inputs, _ = batch(32)
    with monitor(model, log=log):
        train(model, [[32]])
    wanted = ((inputs.mean(0) - mean_before).abs() / (variance_before + model[0].eps).sqrt()).mean()
    assert log.all("batchnorm_drift") == [pytest.approx(float(wanted), rel=1e-4)]


# ------------------------------------------------------------------------------------------------- epochs


def epochs(length: int, how: str, number: int = 2) -> list[str]:
    """Windows of four micro-batches over a loader of so many; what happens to those that are left."""
    model = tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader([batch(4) for _ in range(length)], batch_size=None)
    seen = 0
    with monitor(model, every=1) as watching:
        for _ in range(number):
            for place, (x, y) in enumerate(loader):
                seen += 1
                (F.cross_entropy(model(x), y) / 4).backward()
                last = how == "stepped" and place == length - 1
                if ((seen if how == "carried" else place + 1) % 4 == 0) or last:
                    optimizer.step()
                    optimizer.zero_grad()
            if how == "cleared":
                optimizer.zero_grad()
    assert watching.values["steps_per_epoch"] == (-(-length // 4) if how == "stepped" else length // 4)
    return [each for each in watching.warnings if each.startswith("GA201")]


def test_leftovers_that_enter_the_next_epoch() -> None:
    (sentence,) = epochs(10, "mixed")
    assert "An epoch of 10 micro-batches made 2 optimizer steps, not 3" in sentence
    assert "the next step used 2 of it and 4 more" in sentence


def test_leftovers_that_are_cleared() -> None:
    assert len(epochs(10, "cleared")) == 1


def test_leftovers_at_the_end_of_the_run() -> None:
    (sentence,) = epochs(11, "carried")  # 22 micro-batches: the last two are left
    assert "An epoch of 11 micro-batches made 3 optimizer steps" in sentence and "2 micro-batches" in sentence


@pytest.mark.parametrize(("length", "how"), [(12, "mixed"), (10, "stepped"), (10, "carried")])
def test_epochs_that_lose_nothing(length: int, how: str) -> None:
    assert not epochs(length, how)
