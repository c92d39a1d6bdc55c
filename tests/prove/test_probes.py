"""The probes of gradient, BatchNorm, coupled losses and moved weights, put on in this process as the monitor does."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiny import classifier, images, pictures_model, points
from torch import nn
from torch.utils.checkpoint import checkpoint

from firstfault.prove.messages import Message
from firstfault.prove.probes import gradient, install_all
from firstfault.prove.record import Record

torch.set_num_threads(1)
ACCUM = 2


class Run:
    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.record = Record(self.sent.append)
        self.undo = install_all(self.record)

    def train(self, model: nn.Module, batches: list[Any], loss: Callable[..., Any], **optimizer: Any) -> list[Message]:
        """Windows of two micro-batches, as they are sent."""
        stepper = torch.optim.SGD(model.parameters(), lr=0.1, **optimizer)
        for i, batch in enumerate(batches):
            loss(model, *batch).backward()
            if (i + 1) % ACCUM == 0:
                stepper.step()
                stepper.zero_grad()
        self.record.close()
        return [each for each in self.sent if each["kind"] == "window"]

    @property
    def notes(self) -> list[str]:
        return [each["why"] for each in self.sent if each["kind"] == "note"]


@pytest.fixture
def run() -> Iterator[Run]:
    started = Run()
    yield started
    started.undo()


def mean(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(inputs), labels) / ACCUM


# ------------------------------------------------------------------------------------------------- gradient


def test_each_window_has_its_gradient(run: Run) -> None:
    windows = run.train(classifier(), points(6), mean)
    assert [len(window["values"]["gradients"]) for window in windows] == [1, 1, 1]
    for window in windows:
        (entry,) = window["values"]["gradients"]
        assert entry["targets"] == 8 and entry["error"] <= 10 * entry["noise"]


def test_parameters_from_before_the_probe_are_followed_from_the_first_step_on() -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    started = Run()
    try:
        for batch in points(6):
            mean(model, *batch).backward()
            if len(started.record.window.micro_batches) == ACCUM:
                optimizer.step()
        started.record.close()
    finally:
        started.undo()
    windows = [each for each in started.sent if each["kind"] == "window"]
    assert ["gradients" in each["values"] for each in windows] == [False, True, True]
    assert any("no gradient arrived" in each.get("why", "") for each in started.sent)


def test_copies_that_are_too_large_are_not_made(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient, "LARGEST", 100)
    windows = run.train(classifier(), points(4), mean)
    assert not any("gradients" in each["values"] for each in windows)
    assert run.notes == ["two copies of the gradients take 0 MB, 0 MB are allowed"]


def test_losses_of_different_weight_are_not_measured(run: Run) -> None:
    def two(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        output = model(inputs)
        return F.cross_entropy(output, labels) + 0.1 * F.mse_loss(output, torch.zeros_like(output))

    windows = run.train(classifier(), points(4), two)
    assert not any("gradients" in each["values"] for each in windows)
    assert "the targets of one micro-batch have different weights" in run.notes


def test_a_loss_that_is_not_watched_is_not_measured(run: Run) -> None:
    windows = run.train(classifier(), points(4), lambda model, inputs, _: model(inputs).pow(2).mean())
    assert not any("gradients" in each["values"] for each in windows)
    assert "a backward came from no loss whose targets are counted" in run.notes


def test_a_gradient_that_is_only_asked_for_is_no_contribution(run: Run) -> None:
    def with_norm(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = mean(model, inputs, labels)
        torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        return loss

    for window in run.train(classifier(), points(4), with_norm):
        assert window["values"]["gradients"][0]["error"] < 1e-6


def test_sparse_gradients_are_not_measured(run: Run) -> None:
    model = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Flatten(), nn.Linear(8, 3))
    batches = [(torch.randint(0, 9, (3, 2)), torch.randint(0, 3, (3,))) for _ in range(4)]
    windows = run.train(model, batches, mean)
    assert not any("gradients" in each["values"] for each in windows)
    assert "a gradient is sparse" in run.notes


def test_a_fused_optimizer_takes_the_factor_of_the_scaler_out_itself(run: Run) -> None:
    model, scaler = classifier(), torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    for i, batch in enumerate(points(4)):
        scaler.scale(mean(model, *batch)).backward()
        if (i + 1) % ACCUM == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    run.record.close()
    entries = [each["values"]["gradients"][0] for each in run.sent if each["kind"] == "window"]
    assert len(entries) == 2 and all(each["error"] < 1e-6 and each["kept_error"] < 1e-6 for each in entries)


def test_both_ways_of_checkpointing_leave_the_contributions_whole(run: Run) -> None:
    for reentrant in (True, False):
        model = classifier()

        def again(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, way: bool = reentrant) -> torch.Tensor:
            hidden = checkpoint(model, inputs.clone().requires_grad_(), use_reentrant=way)
            return F.cross_entropy(hidden, labels) / ACCUM

        windows = run.train(model, points(4), again)
        assert all(each["values"]["gradients"][0]["kept_error"] < 1e-6 for each in windows)


# ------------------------------------------------------------------------------------------------ BatchNorm


def test_updates_drift_and_elements_of_a_layer(run: Run) -> None:
    first, second = run.train(pictures_model(nn.BatchNorm2d(8, momentum=0.2)), images(4), mean)
    (layer,) = first["values"]["batchnorm"]
    wanted = {"layer": "1", "kind": "BatchNorm2d", "channels": 8, "momentum": 0.2, "updates": 2, "batches": 2}
    assert wanted.items() <= layer.items()
    assert layer["elements"] == 4 * 4 * 4 and layer["recomputed"] == 0 and not layer["synchronised"]
    assert layer["drift"] > second["values"]["batchnorm"][0]["drift"] / 10 > 0
    assert layer["spread"] > 0


def test_the_first_forward_of_a_window_is_its_own(run: Run) -> None:
    windows = run.train(pictures_model(nn.BatchNorm2d(8)), images(8), mean)
    assert [each["values"]["batchnorm"][0]["updates"] for each in windows] == [2, 2, 2, 2]


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_updates_twice(reentrant: bool, run: Run) -> None:
    model = pictures_model(nn.BatchNorm2d(8))

    def again(model: nn.Module, pictures: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        hidden = checkpoint(model, pictures.clone().requires_grad_(), use_reentrant=reentrant)
        return F.cross_entropy(hidden, labels) / ACCUM

    for window in run.train(model, images(4), again):
        (layer,) = window["values"]["batchnorm"]
        assert (layer["updates"], layer["recomputed"]) == (4, 2)
    assert int(model[1].num_batches_tracked) == 8, "as torch counts them"


def test_layers_without_running_statistics_and_without_momentum(run: Run) -> None:
    norms = nn.Sequential(nn.BatchNorm2d(8, track_running_stats=False), nn.BatchNorm2d(8, momentum=None))
    first, _ = run.train(pictures_model(norms), images(4), mean)
    untracked, cumulative = first["values"]["batchnorm"]
    assert untracked["updates"] == 0 and untracked["batches"] == 2 and untracked["drift"] is None
    assert cumulative["momentum"] is None and cumulative["updates"] == 2


def test_frozen_layers_are_counted_and_evaluation_is_not(run: Run) -> None:
    model = pictures_model(nn.BatchNorm2d(8))
    model[1].eval()
    with torch.no_grad():
        model(images(1)[0][0])
    first, _ = run.train(model, images(4), mean)
    assert "batchnorm" not in first["values"] and first["values"]["batchnorm_still"] == 1


def test_synchronised_layers_are_told(run: Run) -> None:
    model = nn.SyncBatchNorm.convert_sync_batchnorm(pictures_model(nn.BatchNorm2d(8)))
    first, _ = run.train(model, images(4), mean)
    assert first["values"]["batchnorm"][0]["synchronised"]


# ------------------------------------------------------------------------------ coupled losses, moved weights


def test_in_batch_negatives_are_seen_and_class_labels_are_not(run: Run) -> None:
    def contrastive(model: nn.Module, inputs: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        scores = model(inputs) @ model(inputs + 1).T
        return F.cross_entropy(scores, torch.arange(len(inputs)))

    first, *_ = run.train(classifier(), points(2, size=5), contrastive)
    one, other = (each["in_batch"] for each in first["micro_batches"])
    assert one == {"rows": 5, "losses": 1} == {name: other[name] for name in one} and other["apart"] > 0.5
    alike = run.train(classifier(), [(torch.ones(5, 5), torch.zeros(5))] * 2, contrastive)[-1]
    assert alike["micro_batches"][1]["in_batch"]["apart"] is None, "examples that are all alike"
    second = run.train(classifier(), [(torch.randn(3, 5), torch.arange(3))] * 2, mean)[-1]
    assert not any("in_batch" in each for each in second["micro_batches"])


def test_weights_that_move_inside_of_a_window(run: Run) -> None:
    def climbing(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            model[0].weight.add_(0.01)
        return mean(model, inputs, labels)

    still, moved = run.train(classifier(), points(2), mean), run.train(classifier(), points(2), climbing)
    assert not any("moved" in each for each in still[-1]["micro_batches"])
    assert ["moved" in each for each in moved[-1]["micro_batches"]] == [False, True]


def test_all_probes_can_be_taken_off(run: Run) -> None:
    run.undo()
    assert run.train(classifier(), points(4), mean) == []
    assert not nn.modules.module._global_forward_pre_hooks
