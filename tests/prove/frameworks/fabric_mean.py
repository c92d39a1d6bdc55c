"""Fabric divides by nothing; the script divides a mean by the number of micro-batches."""

import torch.nn.functional as F
from lightning.fabric import Fabric
from tiny import language_model, text
from torch.optim import SGD

ACCUM = 4
fabric = Fabric(accelerator="cpu", devices=1)
model = language_model()
model, optimizer = fabric.setup(model, SGD(model.parameters(), lr=0.1))
for i, (ids, labels) in enumerate(text()):
    with fabric.no_backward_sync(model, enabled=(i + 1) % ACCUM != 0):
        loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100)
        fabric.backward(loss / ACCUM)
    if (i + 1) % ACCUM == 0:
        optimizer.step()
        optimizer.zero_grad()
