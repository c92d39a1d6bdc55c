"""The weight of a target, as each loss function of torch gives it; the probes without a runner, as in the monitor."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from firstfault.prove.messages import Message
from firstfault.prove.probes import install_all
from firstfault.prove.record import Record

PROBES = ("boundaries", "gradient_state", "ledger", "token_weights")
LABELS = torch.tensor([0, 2, -100, 1, 2, -100])
CLASSES = torch.tensor([1.0, 2.0, 4.0])
ONES = torch.ones(3)


class Run:
    """A model of one number for each output, its optimizer, and what the probes sent."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.record = Record(self.sent.append)
        self.undo = install_all(self.record, PROBES)
        torch.manual_seed(0)
        self.weights = nn.Parameter(torch.randn(6, 3))
        self.optimizer = torch.optim.SGD([self.weights], lr=0.1)

    def losses(self, *losses: Callable[[torch.Tensor], torch.Tensor]) -> list[dict[str, Any]]:
        """One window whose micro-batches have these losses."""
        for loss in losses:
            loss(self.weights).backward()
        return [each for micro_batch in self.window()["micro_batches"] for each in micro_batch["losses"]]

    def window(self) -> Message:
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.record.close()
        return [each for each in self.sent if each["kind"] == "window"][-1]

    @property
    def notes(self) -> list[str]:
        return [each["why"] for each in self.sent if each["kind"] == "note"]


@pytest.fixture
def run() -> Iterator[Run]:
    started = Run()
    yield started
    started.undo()


@pytest.mark.parametrize(
    ("loss", "targets", "counted", "weight"),
    [
        (lambda w: F.cross_entropy(w, LABELS), 4, 4, 1 / 4),
        (lambda w: nn.CrossEntropyLoss()(w, LABELS) / 2, 4, 4, 1 / 8),
        (lambda w: F.cross_entropy(w, LABELS, label_smoothing=0.1), 4, 4, 1 / 4),
        (lambda w: F.cross_entropy(w, LABELS, reduction="sum") / 100, 4, 4, 1 / 100),
        (lambda w: F.cross_entropy(w, LABELS, reduction="none").sum() / 100, 4, 4, 1 / 100),
        (lambda w: F.cross_entropy(w, LABELS, size_average=False) / 100, 4, 4, 1 / 100),
        (lambda w: F.cross_entropy(w, LABELS, weight=CLASSES), 4, 11, 1 / 11),
        (lambda w: F.cross_entropy(w, LABELS, weight=CLASSES, reduction="none").sum() / 11, 4, 11, 1 / 11),
        (lambda w: F.cross_entropy(w.T[None], LABELS[None]), 4, 4, 1 / 4),
        (lambda w: F.cross_entropy(w, w.detach().softmax(1)), 6, 6, 1 / 6),
        (lambda w: nn.NLLLoss(ignore_index=2)(w.log_softmax(1), LABELS.clamp(min=0)), 4, 4, 1 / 4),
        (lambda w: F.binary_cross_entropy(w.sigmoid(), torch.ones(6, 3)), 18, 18, 1 / 18),
        (lambda w: nn.BCEWithLogitsLoss()(w, torch.ones(6, 3)), 18, 18, 1 / 18),
        (lambda w: F.binary_cross_entropy_with_logits(w[0], ONES, torch.tensor([1.0, 0, 1]), reduction="sum") / 2,
         2, 2, 1 / 2),
        (lambda w: F.mse_loss(w, torch.zeros(6, 3)), 18, 18, 1 / 18),
        (lambda w: nn.HuberLoss(reduction="sum")(w, torch.zeros(6, 3)) / 5, 18, 18, 1 / 5),
        (lambda w: F.kl_div(w.log_softmax(1), w.detach().softmax(1), reduction="batchmean"), 6, 6, 1 / 6),
        (lambda w: F.ctc_loss(w.log_softmax(1)[:, None].repeat(1, 2, 1), torch.tensor([[1, 2]] * 2), (6, 6), (2, 1)),
         2, 2, 1 / 2),
    ],
)  # fmt: skip
def test_a_loss_tells_its_targets_and_their_weight(
    run: Run, loss: Callable[[torch.Tensor], torch.Tensor], targets: int, counted: float, weight: float
) -> None:
    (found,) = run.losses(loss)
    assert (found["targets"], found["counted"]) == (targets, counted)
    assert found["weight"] == pytest.approx(weight, rel=1e-6)
    assert (found["low"], found["high"]) == pytest.approx((weight, weight), rel=1e-6)
    assert found["file"] == __file__
    assert not run.notes


def test_weights_times_targets_are_the_gradient(run: Run) -> None:
    """Independent of all counting: raising one target's own loss by d raises the objective by weight x d."""
    (found,) = run.losses(lambda w: F.cross_entropy(w, LABELS, weight=CLASSES) / 3)
    one = torch.zeros(6, requires_grad=True)
    each = F.nll_loss(run.weights.detach().log_softmax(1), LABELS, reduction="none") + one
    weights = torch.where(LABELS < 0, 0, CLASSES[LABELS.clamp(min=0)])
    ((each * weights).sum() / weights.sum() / 3).backward()
    assert one.grad is not None
    assert found["weight"] * weights == pytest.approx(one.grad, rel=1e-6)


def test_a_mask_of_the_script_counts_and_a_weight_for_each_target_shows(run: Run) -> None:
    mask = torch.tensor([1.0, 0, 0, 1, 0, 0])
    masked, weighted = run.losses(
        lambda w: (F.cross_entropy(w, LABELS, reduction="none") * mask).sum() / mask.sum(),
        lambda w: (F.cross_entropy(w, LABELS, reduction="none") * torch.arange(6.0)).sum(),
    )
    assert (masked["targets"], masked["weight"]) == (2, pytest.approx(0.5))
    assert (weighted["low"], weighted["high"]) == (1.0, 4.0)


def test_what_is_not_added_to_the_gradients_does_not_count(run: Run) -> None:
    with torch.no_grad():
        F.cross_entropy(run.weights, LABELS)
    F.cross_entropy(run.weights, LABELS)  # for the log
    torch.autograd.grad(F.cross_entropy(run.weights, LABELS), run.weights)
    assert len(run.losses(lambda w: F.cross_entropy(w, LABELS))) == 1


def test_factors_after_backward_are_seen(run: Run) -> None:
    for _ in range(2):
        F.cross_entropy(run.weights, LABELS, reduction="sum").backward()
    assert run.weights.grad is not None
    run.weights.grad.mul_(1 / 8)
    torch.nn.utils.clip_grad_norm_([run.weights], 1e-3)  # its factor is its own affair
    window = run.window()
    assert window["micro_batches"][-1]["factor_after"]["0"] == pytest.approx(1 / 8, rel=1e-5)
    (clip,) = (each for each in window["events"] if each["name"] == "clip")
    assert clip["factor"] < 0.1


@pytest.mark.parametrize(
    ("clear", "state"),
    [
        (lambda run: run.optimizer.zero_grad(), "cleared"),
        (lambda run: run.optimizer.zero_grad(set_to_none=False), "cleared"),
        (lambda run: setattr(run.weights, "grad", None), "cleared"),
        (lambda run: None, "kept"),
        (lambda run: run.weights.grad.add_(1), "changed"),
    ],
)
def test_how_a_window_begins(run: Run, clear: Callable[[Run], None], state: str) -> None:
    for _ in range(2):
        F.cross_entropy(run.weights, LABELS).backward()
        run.optimizer.step()
        clear(run)
    F.cross_entropy(run.weights, LABELS).backward()
    assert run.record.window.values["began"] == {"0": state}


def test_a_scalers_factor_is_divided_out_and_a_skipped_step_is_told(run: Run) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    for factor in (1e30, 1.0):
        scaler.scale(F.cross_entropy(run.weights * factor, LABELS) * factor).backward()
        scaler.step(run.optimizer)
        scaler.update()
        run.optimizer.zero_grad()
    run.record.close()
    first, second = (each for each in run.sent if each["kind"] == "window")
    assert (first["skipped"], second["skipped"]) == (True, False)
    assert second["micro_batches"][0]["losses"][0]["weight"] == pytest.approx(1 / 4)


def test_a_step_that_is_given_a_closure(run: Run) -> None:
    def closure() -> torch.Tensor:
        run.optimizer.zero_grad()
        loss = F.cross_entropy(run.weights, LABELS)
        loss.backward()
        return loss

    for _ in range(3):
        run.optimizer.step(closure)
    windows = [each for each in run.sent if each["kind"] == "window"]
    assert [len(each["micro_batches"]) for each in windows] == [1, 1]


def test_scripted_and_compiled_losses_still_work(run: Run) -> None:
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, y)

    expected = loss(run.weights, LABELS)
    assert torch.equal(torch.jit.script(loss)(run.weights, LABELS), expected)
    assert torch.equal(torch.compile(loss, backend="eager", fullgraph=True)(run.weights, LABELS), expected)


def test_a_probe_that_fails_is_noted_and_the_script_goes_on(run: Run) -> None:
    calls = []
    run.record.on("accumulated", lambda _: calls.append(1) or 1 / 0)
    for _ in range(2):
        F.cross_entropy(run.weights, LABELS).backward()
    assert calls == [1]
    assert run.notes == ["the probe failed (ZeroDivisionError: division by zero)"]


def test_a_window_without_end_is_sent_as_it_is(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firstfault.prove.record.LONGEST", 4)
    stopped: list[int] = []
    run.record.limit, run.record.stop = 2, lambda: stopped.append(len(run.record.window.micro_batches))
    for _ in range(4):
        F.cross_entropy(run.weights, LABELS).backward()
    (window,) = (each for each in run.sent if each["kind"] == "window")
    assert (window["stepped"], len(window["micro_batches"]), stopped) == (False, 4, [0])


def test_probes_are_taken_off() -> None:
    watched = [(F, "cross_entropy"), (torch.autograd, "backward"), (torch.nn.utils, "clip_grad_norm_")]
    watched += [(torch.optim.Optimizer, "zero_grad"), (torch.optim.lr_scheduler.StepLR, "step")]
    before = [getattr(owner, name, None) for owner, name in watched]
    started = Run()
    assert F.cross_entropy is not before[0]
    started.undo()
    assert [getattr(owner, name, None) for owner, name in watched] == before
