"""Windows are filled up to a number of targets, so they hold different numbers of micro-batches."""

import torch.nn.functional as F
from tiny import LONG_AND_SHORT, language_model, text
from torch.optim import SGD

model = language_model()
optimizer = SGD(model.parameters(), lr=0.1)
window, targets = [], 0
for ids, labels in text(LONG_AND_SHORT * 2):
    window.append((ids, labels))
    targets += int((labels != -100).sum())
    if targets < 30:
        continue
    for inputs, wanted in window:
        logits = model(inputs).flatten(0, 1)
        (F.cross_entropy(logits, wanted.flatten(), ignore_index=-100, reduction="sum") / targets).backward()
    optimizer.step()
    optimizer.zero_grad()
    window, targets = [], 0
