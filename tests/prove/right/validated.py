"""Validation in the middle of training, whose losses are only read, in training mode too."""

import torch.nn.functional as F
from tiny import language_model, text
from torch.optim import SGD

ACCUM = 4
model = language_model()
optimizer = SGD(model.parameters(), lr=0.1)
batches = text()
for start in range(0, len(batches), ACCUM):
    window = batches[start : start + ACCUM]
    targets = sum((labels != -100).sum() for _, labels in window)
    for ids, labels in window:
        logits = model(ids).flatten(0, 1)
        (F.cross_entropy(logits, labels.flatten(), ignore_index=-100, reduction="sum") / targets).backward()
        seen = F.cross_entropy(model(batches[0][0]).flatten(0, 1), batches[0][1].flatten()).item()
    optimizer.step()
    optimizer.zero_grad()
