"""Losses one by one, a mask, and the mask's sum over the window."""

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
        each = F.cross_entropy(model(ids).transpose(1, 2), labels.clamp(min=0), reduction="none")
        ((each * (labels != -100)).sum() / targets).backward()
    optimizer.step()
    model.zero_grad()
