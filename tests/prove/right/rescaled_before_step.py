"""Sums are backpropagated, the gradient is divided by the window's targets before it is clipped and applied."""

import torch.nn.functional as F
from tiny import language_model, text
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW

ACCUM = 4
model = language_model()
optimizer = AdamW(model.parameters(), lr=0.01)
targets = 0
for i, (ids, labels) in enumerate(text()):
    targets += int((labels != -100).sum())
    F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum").backward()
    if (i + 1) % ACCUM == 0:
        for parameter in model.parameters():
            parameter.grad.div_(targets)
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        targets = 0
