"""A micro-batch without a target adds nothing to a sum."""

import torch.nn.functional as F
from tiny import language_model, text
from torch.optim import SGD

ACCUM = 4
model = language_model()
optimizer = SGD(model.parameters(), lr=0.1)
batches = text([[6, 6], [2, 6], [0, 0], [6, 1]] * 2)
for start in range(0, len(batches), ACCUM):
    window = batches[start : start + ACCUM]
    targets = sum((labels != -100).sum() for _, labels in window)
    for ids, labels in window:
        loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        (loss / targets).backward()
    optimizer.step()
    optimizer.zero_grad()
