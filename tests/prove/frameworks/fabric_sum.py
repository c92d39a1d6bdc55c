"""Fabric with the sum over the window's targets."""

import torch.nn.functional as F
from lightning.fabric import Fabric
from tiny import language_model, text
from torch.optim import SGD

ACCUM = 4
fabric = Fabric(accelerator="cpu", devices=1)
model = language_model()
model, optimizer = fabric.setup(model, SGD(model.parameters(), lr=0.1))
batches = text()
for start in range(0, len(batches), ACCUM):
    window = batches[start : start + ACCUM]
    targets = sum((labels != -100).sum() for _, labels in window)
    for ids, labels in window:
        loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        fabric.backward(loss / targets)
    optimizer.step()
    optimizer.zero_grad()
