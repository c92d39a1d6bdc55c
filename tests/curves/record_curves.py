"""Records the curves of this folder anew: ``python tests/curves/record_curves.py [NAME ...]``.

Each is what a small training really printed, most with one fault, the others healthy and noisy. The loops are real; the
forms of the lines are those of common loggers. ``trainer-*`` and ``lightning-*`` need transformers and Lightning, which
are no dependencies of the project: without them these logs stay as they are. What the answer must be stands in
``expected.toml``, written by hand.
"""

import contextlib
import io
import json
import math
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

HERE = Path(__file__).parent
CASES: dict[str, Callable[[], None]] = {}


def main() -> None:
    for name in sys.argv[1:] or CASES:
        torch.manual_seed(7)
        text = io.StringIO()
        try:
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
                CASES[name]()
        except ImportError as error:
            print(f"{name}: left as it is ({error})")
            continue
        (HERE / f"{name}.log").write_text(scrubbed(text.getvalue()), encoding="utf-8")
        print(name)


def scrubbed(text: str) -> str:
    return re.sub(r"/\S*?/((?:site-packages|tests)/)", r"/home/ann/lab/\1", text).replace(str(Path.home()), "/home/ann")


def case(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def keep(function: Callable[[], None]) -> Callable[[], None]:
        CASES[name] = function
        return function

    return keep


# ------------------------------------------------------------------------------------------ models and data


def classifier(classes: int = 10, width: int = 32) -> nn.Module:
    return nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, classes))


def batches(
    count: int, size: int = 32, classes: int = 10, noise: float = 1.5
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    centres = torch.randn(classes, 16, generator=torch.Generator().manual_seed(3)) * 2
    for _ in range(count):
        labels = torch.randint(classes, (size,))
        yield centres[labels] + noise * torch.randn(size, 16), labels


def norm_of(model: nn.Module) -> float:
    return float(nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))


def trained(
    model: nn.Module, steps: int, lr: float, clear: bool = True, momentum: float = 0.0
) -> Iterator[tuple[int, float, float]]:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    for step, (inputs, labels) in enumerate(batches(steps), start=1):
        loss = F.cross_entropy(model(inputs), labels)
        if clear:
            optimizer.zero_grad()
        loss.backward()
        norm = norm_of(model)
        optimizer.step()
        yield step, loss.item(), norm


# ------------------------------------------------------------------------------------------ faults


@case("nan-rate-plain")
def nan_from_a_high_rate() -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=4.0)
    for step, (inputs, labels) in enumerate(batches(40)):
        loss = F.mse_loss(model(inputs), F.one_hot(labels, 10).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")
    print("training finished")


@case("nan-after-growth-megatron")
def nan_after_the_gradient_norm_grew() -> None:
    """A rate just above what is stable: the norm grows a little in every step, for a long time."""
    model = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step, (inputs, labels) in enumerate(batches(240), start=1):
        if step == 120:
            optimizer.param_groups[0]["lr"] = 1.0
        loss = F.mse_loss(model(inputs), F.one_hot(labels, 10).float())
        optimizer.zero_grad()
        loss.backward()
        norm = norm_of(model)
        optimizer.step()
        if step % 2 == 0:
            print(
                f" iteration {step:8}/{240:8} | consumed samples: {32 * step:12} | learning rate: 3.500E-01 | "
                f"global batch size:    32 | lm loss: {loss.item():.6E} | loss scale: 1.0 | grad norm: {norm:.3f} | "
                "number of skipped iterations:   0 | number of nan iterations:   0 |"
            )


@case("scale-falls-deepspeed")
def loss_scale_falls() -> None:
    """float16 whose gradients overflow at every scale, by the rule of a dynamic scaler."""
    model, scale = classifier(), 65536.0
    for step, (inputs, labels) in enumerate(batches(60)):
        model.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        (loss * scale).backward()
        halves = [(p.grad * 3e9).half() for p in model.parameters() if p.grad is not None]
        if all(bool(torch.isfinite(each).all()) for each in halves):
            raise SystemExit("this must overflow")
        print(
            f"[2026-11-30 10:00:{step % 60:02},{step:03}] [INFO] [loss_scaler.py:183:update_scale] [deepspeed] "
            f"OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {scale:g}, reducing to {max(scale / 2, 1):g}"
        )
        scale = max(scale / 2, 1.0)
        if step % 10 == 0:
            print(f"{{'loss': {loss.item():.4f}, 'learning_rate': 0.0, 'epoch': {step / 60:.2f}}}")
        if step == 22:
            return


@case("scale-vanishes-scaler")
def scale_of_a_grad_scaler_vanishes() -> None:
    model = classifier()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    for step, (inputs, labels) in enumerate(batches(30)):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(inputs), labels) + torch.log(model(inputs).abs().min() * 0)
        scaler.scale(loss.clamp(-9, 9) + 0 * loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        with torch.no_grad():
            shown = F.cross_entropy(model(inputs), labels).item()
        print(f"step {step} | loss {shown:.4f} | grad_scale {scaler.get_scale():g}")


@case("zero-grad-missing")
def gradients_are_never_cleared() -> None:
    for step, loss, norm in trained(classifier(), 14, lr=0.0005, clear=False):
        print(f"step {step} loss {loss:.4f} grad_norm {norm:.4f}")


@case("zero-grad-missing-diverges")
def gradients_are_never_cleared_and_the_loss_explodes() -> None:
    for step, loss, norm in trained(classifier(), 120, lr=0.3, clear=False):
        if step % 3 == 0:
            print(json.dumps({"step": step, "loss": round(loss, 4), "grad_norm": round(norm, 4)}))


@case("resume-without-weights")
def resume_that_loads_no_weights() -> None:
    model = classifier()
    for step, loss, _ in trained(model, 400, lr=0.1):
        if step % 20 == 0:
            print(f"INFO:train:step {step} loss {loss:.4f}")
    state = {f"module.{name}": value for name, value in model.state_dict().items()}
    print("INFO:train:saved runs/step_400.pt")
    print("INFO:train:resuming from checkpoint runs/step_400.pt")
    fresh = classifier()
    fresh.load_state_dict(state, strict=False)
    for step, loss, _ in trained(fresh, 160, lr=0.01):
        if step % 20 == 0:
            print(f"INFO:train:step {400 + step} loss {loss:.4f}")


@case("labels-shuffled-bar")
def labels_that_do_not_belong_to_the_inputs() -> None:
    from tqdm import tqdm

    model = classifier(width=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    print("num_classes=10 batch_size=512")
    bar = tqdm(list(batches(400, size=512)), desc="Epoch 0", mininterval=0, miniters=5, ncols=80)
    for inputs, labels in bar:
        loss = F.cross_entropy(0.1 * model(inputs), labels[torch.randperm(len(labels))])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bar.set_postfix(loss=f"{loss.item():.4f}", refresh=False)


@case("optimizer-of-another-model")
def optimizer_holds_another_models_parameters() -> None:
    model, other = classifier(), classifier()
    optimizer = torch.optim.AdamW(other.parameters(), lr=1e-3)
    fixed = [next(batches(1, size=64)) for _ in range(1)]
    for epoch in range(1, 13):
        print(f"Epoch {epoch}/12")
        for inputs, labels in fixed:
            loss = F.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"1/1 [==============================] - 0s 4ms/step - loss: {loss.item():.4f} - accuracy: 0.0938")


@case("loss-detached-trainer-form")
def gradient_that_reaches_no_parameter() -> None:
    model = classifier()
    for step, (inputs, labels) in enumerate(batches(12), start=1):
        loss = F.cross_entropy(model(inputs).detach().requires_grad_(), labels)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        print({"loss": round(loss.item(), 4), "grad_norm": float(norm), "learning_rate": 1e-05, "epoch": step / 12})


@case("softmax-before-loss-lightning")
def softmax_in_front_of_cross_entropy() -> None:
    lightning_run(lambda model, inputs: model(inputs).softmax(-1), epochs=40, lr=1e-3, width=8)


@case("diverges-adam-json")
def a_rate_that_is_too_high_for_adam() -> None:
    model = classifier(width=64)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (inputs, labels) in enumerate(batches(400), start=1):
        if step == 250:
            optimizer.param_groups[0]["lr"] = 3.0
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(
                json.dumps({"step": step, "train/loss": round(loss.item(), 5), "lr": optimizer.param_groups[0]["lr"]})
            )


@case("accumulated-loss-undivided")
def printed_loss_is_a_sum_over_the_window() -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    print("***** Running training *****\n  Gradient Accumulation steps = 8")
    data = list(batches(8 * 60))
    for window in range(60):
        optimizer.zero_grad()
        total = torch.zeros(())
        for inputs, labels in data[8 * window : 8 * window + 8]:
            loss = F.cross_entropy(model(inputs), labels)
            loss.backward()
            total += loss.detach()
        optimizer.step()
        if window % 5 == 4:
            print({"loss": round(total.item(), 4), "learning_rate": 1e-2, "epoch": round(window / 60, 3)})
        if window % 15 == 14:
            inputs, labels = next(batches(1, size=512))
            with torch.no_grad():
                shown = F.cross_entropy(model(inputs), labels).item()
            print({"eval_loss": round(shown, 4), "epoch": round(window / 60, 3)})


@case("nan-columns")
def nan_in_columns_below_a_header() -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(1, 9):
        print("\n      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size")
        for inputs, labels in batches(30):
            loss = F.cross_entropy(model(inputs), labels)
            if epoch == 5:
                loss = loss * torch.zeros(()).log()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        part = loss.item()
        print(
            f"{f'{epoch}/8':>11}{'2.1G':>11}{part:>11.4g}{part * 1.3:>11.4g}{part * 0.7:>11.4g}{12:>11}{640:>11}: "
            "100%|██████████| 30/30 [00:01<00:00, 25.1it/s]"
        )


@case("trainer-nan-hidden")
def trainer_hides_nan() -> None:
    trainer_run(fault=40)


@case("trainer-nan-shown")
def trainer_shows_nan() -> None:
    trainer_run(fault=40, logging_nan_inf_filter=False)


# ------------------------------------------------------------------------------------------ healthy runs


@case("healthy-plain")
def healthy_and_noisy() -> None:
    for step, loss, norm in trained(classifier(), 300, lr=0.05):
        if step % 5 == 0:
            print(f"step {step} loss {loss:.4f} grad_norm {norm:.3f}")
    print("done")


@case("healthy-warm-up-spike")
def spike_that_comes_back() -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (inputs, labels) in enumerate(batches(300), start=1):
        optimizer.param_groups[0]["lr"] = 6.0 if step in (60, 61) else 0.05
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 6 == 0 or 58 < step < 70:
            print(f"[2026-11-30 10:00:00][INFO] step={step:05d} loss={loss.item():.4f} lr=5.0e-02")


@case("healthy-gan")
def adversaries() -> None:
    maker, judge = (
        nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16)),
        nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)),
    )
    ours, theirs = torch.optim.Adam(maker.parameters(), 2e-3), torch.optim.Adam(judge.parameters(), 2e-3)
    ones, zeros = torch.ones(32, 1), torch.zeros(32, 1)
    for step, (inputs, _) in enumerate(batches(600)):
        fake = maker(torch.randn(32, 4))
        d_loss = F.binary_cross_entropy_with_logits(judge(inputs), ones) + F.binary_cross_entropy_with_logits(
            judge(fake.detach()), zeros
        )
        theirs.zero_grad()
        d_loss.backward()
        theirs.step()
        g_loss = F.binary_cross_entropy_with_logits(judge(fake), ones)
        ours.zero_grad()
        g_loss.backward()
        ours.step()
        if step % 20 == 0:
            print(f"[{step // 100}/6][{step % 100}/100] Loss_D: {d_loss.item():.4f} Loss_G: {g_loss.item():.4f}")


@case("healthy-policy-gradient")
def rewards_below_zero() -> None:
    policy = nn.Linear(16, 10)
    optimizer = torch.optim.Adam(policy.parameters(), 1e-2)
    for step, (inputs, labels) in enumerate(batches(200), start=1):
        choice = torch.distributions.Categorical(logits=policy(inputs))
        action = choice.sample()
        reward = (action == labels).float() - 1
        loss = -(choice.log_prob(action) * (reward - reward.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(
                {
                    "loss": round(loss.item(), 4),
                    "reward": round(reward.mean().item(), 4),
                    "kl": 0.0,
                    "epoch": step / 200,
                }
            )


@case("healthy-nan-not-computed-yet")
def validation_that_has_not_run_yet() -> None:
    shown = math.nan
    model = classifier()
    for step, loss, _ in trained(model, 120, lr=0.05):
        if step % 30 == 0:
            inputs, labels = next(batches(1, size=256))
            with torch.no_grad():
                shown = F.cross_entropy(model(inputs), labels).item()
        if step % 6 == 0:
            print(f"step {step}: train loss {loss:.4f}, val loss {shown:.4f}")


@case("healthy-scaler-skips")
def scaler_that_looks_for_its_scale() -> None:
    """A dynamic scaler: it doubles every 40 good steps, and skips the step that overflows."""
    model, scale, good = classifier(), 2.0**20, 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (inputs, labels) in enumerate(batches(300)):
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        halves = [(p.grad * scale).half() for p in model.parameters() if p.grad is not None]
        if all(bool(torch.isfinite(each).all()) for each in halves):
            optimizer.step()
            good += 1
            scale = scale * 2 if good % 40 == 0 else scale
        else:
            print(
                f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {scale:g}, "
                f"reducing to {scale / 2:g}"
            )
            scale /= 2
        if step % 10 == 0:
            print(f"iteration {step}: loss {loss.item():.4f} loss scale {scale:g}")


@case("healthy-overfits")
def training_falls_and_validation_rises() -> None:
    model = classifier(width=256)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    (inputs, labels), (others, truth) = batches(2, size=64, noise=4.0)
    for epoch in range(60):
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            shown = F.cross_entropy(model(others), truth).item()
        print(f"[2026-11-30 10:{epoch:02}:00] INFO epoch {epoch} train_loss: {loss.item():.4f} val_loss: {shown:.4f}")


@case("healthy-resume")
def resume_that_goes_on() -> None:
    model = classifier()
    for step, loss, _ in trained(model, 300, lr=0.05):
        if step % 15 == 0:
            print(f"step {step} loss {loss:.4f}")
    print("Resuming training from checkpoint runs/step_300.pt")
    for step, loss, _ in trained(model, 300, lr=0.05):
        if step % 15 == 0:
            print(f"step {300 + step} loss {loss:.4f}")


@case("healthy-fine-tuning-flat")
def fine_tuning_that_hardly_moves() -> None:
    model = classifier()
    for _ in trained(model, 800, lr=0.1):
        pass
    for step, loss, norm in trained(model, 200, lr=0.0005):
        if step % 4 == 0:
            print({"loss": round(loss, 4), "grad_norm": round(norm, 3), "learning_rate": 5e-4, "epoch": step / 200})


@case("healthy-folds")
def five_folds_one_after_the_other() -> None:
    for fold in range(3):
        print(f"fold {fold}")
        for step, loss, _ in trained(classifier(), 200, lr=0.1):
            if step % 20 == 0:
                print(f"epoch {step // 20} loss {loss:.4f}")


@case("healthy-annealed-term")
def term_whose_weight_grows() -> None:
    encoder, decoder = nn.Linear(16, 8), nn.Linear(4, 16)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 5e-3)
    for step, (inputs, _) in enumerate(batches(600), start=1):
        mean, spread = encoder(inputs).chunk(2, -1)
        rebuilt = decoder(mean + torch.randn_like(mean) * (spread / 2).exp())
        kl = -0.5 * (1 + spread - mean**2 - spread.exp()).sum(-1).mean()
        loss = F.mse_loss(rebuilt, inputs) + min(step / 400, 1) * 0.2 * kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(f"iter {step}: loss {loss.item():.4f}")


@case("trainer-healthy")
def trainer_that_learns() -> None:
    trainer_run(fault=None)


@case("lightning-healthy")
def lightning_that_learns() -> None:
    lightning_run(lambda model, inputs: model(inputs), epochs=6, lr=1e-2, width=32)


# ------------------------------------------------------------------------------------------ real trainers


def trainer_run(fault: int | None, **options: object) -> None:
    from transformers import Trainer, TrainingArguments

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.calls = classifier(), 0

        def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            self.calls += 1
            loss = F.cross_entropy(self.net(inputs), labels)
            return {"loss": loss * torch.zeros(()).log() if fault and self.calls >= fault else loss}

    rows = [
        {"inputs": x, "labels": y}
        for inputs, labels in batches(120, size=8)
        for x, y in zip(inputs, labels, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=8,
            logging_steps=5,
            num_train_epochs=1,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            learning_rate=1e-2,
            dataloader_pin_memory=False,
            **options,
        )
        Trainer(Model(), arguments, train_dataset=rows).train()


def lightning_run(
    outputs: Callable[[nn.Module, torch.Tensor], torch.Tensor], epochs: int, lr: float, width: int
) -> None:
    import logging

    import pytorch_lightning as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = classifier(width=width)

        def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
            loss = F.cross_entropy(outputs(self.net, batch[0]), batch[1])
            self.log("train_loss", loss, prog_bar=True)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=lr)

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    inputs, labels = next(batches(1, size=2560))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, labels), batch_size=256)
    from pytorch_lightning.callbacks import TQDMProgressBar

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pl.Trainer(
            callbacks=[TQDMProgressBar(refresh_rate=1)],
            max_epochs=epochs,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
        ).fit(Module(), loader)


if __name__ == "__main__":
    main()
