"""The callbacks, on real trainers with tiny models: the values stand in the trainer's own logs."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from firstfault.monitor import hf_callback, lightning_callback, monitor
from monitor.training import Logged, batch, tagger

transformers = pytest.importorskip("transformers")
lightning = pytest.importorskip("lightning.pytorch")
torch.set_num_threads(1)

# ------------------------------------------------------------------------------------------------- transformers


def hf_trainer(**named: Any) -> Any:
    from prove.trainer import trainer

    made = trainer(**named)
    made.args.logging_strategy, made.args.logging_steps = transformers.trainer_utils.IntervalStrategy.STEPS, 1
    made.remove_callback(transformers.trainer_callback.PrinterCallback)
    return made


def mean_loss(model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
    logits = model(**inputs).logits[:, :-1].flatten(0, 1)
    loss = F.cross_entropy(logits, inputs["labels"][:, 1:].flatten(), ignore_index=-100)
    return (loss, logits) if return_outputs else loss


def with_mean_loss() -> type:
    def compute_loss(self: Any, *arguments: Any, **named: Any) -> Any:
        return mean_loss(*arguments, **named)

    return type("MeanLoss", (transformers.Trainer,), {"compute_loss": compute_loss})


def test_values_in_the_logs_of_the_trainer() -> None:
    seen = Seen()
    trainer = hf_trainer(callbacks=[seen.callback(), hf_callback(every=1)])
    trainer.train()
    history = [each for each in trainer.state.log_history if "firstfault/mass" in each]
    assert [each["step"] for each in history] == [1, 2, 3]
    for each in history:
        assert each["firstfault/mass"] == pytest.approx(1, abs=1e-3) and "loss" in each
        assert each["firstfault/weight_ratio"] == pytest.approx(1, abs=1e-3)
        assert each["firstfault/micro_batches_per_step"] == 4
    assert not seen.logged, "those in front of it do not see its values"


def test_those_that_report_see_the_values_too(caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen()
    trainer = hf_trainer(kind=with_mean_loss(), lengths=[8] * 32, callbacks=[seen.callback()])
    hf_callback(trainer, every=1)
    trainer.train()
    assert [each["firstfault/mass"] for each in seen.logged] == [pytest.approx(4)] * 3
    warned = [each.getMessage() for each in caplog.records if each.name == "firstfault"]
    assert len(warned) == 1 and "not divided by the 4 micro-batches" in warned[0]


class Seen:
    """A callback that reports, as that of TensorBoard does."""

    def __init__(self) -> None:
        self.logged: list[dict[str, float]] = []

    def callback(self) -> Any:
        def on_log(_: Any, arguments: Any, state: Any, control: Any, logs: dict[str, float], **__: Any) -> None:
            if "firstfault/mass" in logs:
                self.logged.append(dict(logs))

        return type("Reporter", (transformers.TrainerCallback,), {"on_log": on_log})()


def test_a_training_that_failed_is_followed_by_another() -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise LookupError("no more data")

    failing = type("Failing", (transformers.TrainerCallback,), {"on_step_end": fail})()
    with pytest.raises(LookupError):
        hf_trainer(callbacks=[hf_callback(every=1), failing]).train()
    trainer = hf_trainer(callbacks=[hf_callback(every=1)])
    trainer.train()
    assert len([each for each in trainer.state.log_history if "firstfault/mass" in each]) == 3
    with monitor(tagger()) as free:
        pass
    assert not free.warnings


# ------------------------------------------------------------------------------------------------- Lightning


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = tagger()

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        inputs, labels = batch
        if number == getattr(self, "fails_at", None):
            raise LookupError("no more data")
        return F.cross_entropy(self.layers(inputs), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Logger(lightning.loggers.logger.DummyLogger):
    def __init__(self) -> None:
        super().__init__()
        self.logged: list[dict[str, float]] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.logged += [metrics] if "firstfault/mass" in metrics else []


def fit(module: Any, callback: Any) -> Logger:
    logger = Logger()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        accumulate_grad_batches=2,
        log_every_n_steps=50,  # the default
        logger=logger,
        callbacks=[callback],
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    torch.manual_seed(0)
    batches = [batch(size) for size in (10, 90, 10, 90, 10, 90)]
    trainer.fit(module, torch.utils.data.DataLoader(batches, batch_size=None))
    return logger


def test_values_in_the_loggers_of_lightning(caplog: pytest.LogCaptureFixture) -> None:
    log = Logged()
    logger = fit(Module(), lightning_callback(every=1, log=log))
    assert log.all("mass") == [pytest.approx(1)] * 3
    assert [each["firstfault/weight_ratio"] for each in logger.logged] == [pytest.approx(9)] * 3
    assert [each["firstfault/mass"] for each in logger.logged] == [pytest.approx(1)] * 3
    assert [each.getMessage()[:18] for each in caplog.records if each.name == "firstfault"] == ["Firstfault: GA101:"]


def test_an_exception_under_lightning_takes_it_off() -> None:
    module = Module()
    module.fails_at = 3
    with pytest.raises(LookupError):
        fit(module, lightning_callback(every=1))
    with monitor(tagger()) as free:
        pass
    assert not free.warnings


@pytest.mark.parametrize("make", [hf_callback, lightning_callback])
def test_wrong_options_are_told_where_they_stand(make: Any) -> None:
    with pytest.raises(ValueError, match="every is a number of optimizer steps"):
        make(every=0)
