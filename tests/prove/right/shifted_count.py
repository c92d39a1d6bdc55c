"""Labels are counted behind the shift."""

import torch.nn.functional as F
from tiny import language_model, text
from torch.optim import SGD

ACCUM = 4
model = language_model()
optimizer = SGD(model.parameters(), lr=0.1)
batches = text()
for start in range(0, len(batches), ACCUM):
    window = batches[start : start + ACCUM]
    targets = sum((labels[:, 1:] != -100).sum() for _, labels in window)
    for ids, labels in window:
        logits, wanted = model(ids)[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        (F.cross_entropy(logits, wanted, ignore_index=-100, reduction="sum") / targets).backward()
    optimizer.step()
    optimizer.zero_grad()
