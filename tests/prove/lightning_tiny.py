"""A module and a trainer of Lightning that write nothing."""

from typing import Any

import lightning
import torch
import torch.nn.functional as F
from tiny import language_model
from torch.utils.data import DataLoader


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = language_model()

    def training_step(self, batch: Any, _: int) -> Any:
        ids, labels = batch
        return F.cross_entropy(self.layers(ids).flatten(0, 1), labels.flatten(), ignore_index=-100)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(model: Model, batches: list[Any], accumulate_grad_batches: int = 4) -> None:
    quiet = {
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "logger": False,
    }
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, accumulate_grad_batches=accumulate_grad_batches, **quiet
    )
    trainer.fit(model, DataLoader(batches, batch_size=None))
