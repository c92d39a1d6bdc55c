"""Manual optimization: the sum over the window's targets."""

import torch.nn.functional as F
from lightning_tiny import Model, fit
from tiny import text

ACCUM = 4


class Manual(Model):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, window, _):
        targets = sum((labels != -100).sum() for _, labels in window)
        for ids, labels in window:
            logits = self.layers(ids).flatten(0, 1)
            self.manual_backward(
                F.cross_entropy(logits, labels.flatten(), ignore_index=-100, reduction="sum") / targets
            )
        self.optimizers().step()
        self.optimizers().zero_grad()


batches = text()
fit(Manual(), [batches[start : start + ACCUM] for start in range(0, len(batches), ACCUM)], accumulate_grad_batches=1)
