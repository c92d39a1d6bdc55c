"""A teacher in evaluation mode, a divergence a sample, equal micro-batches."""

import torch
import torch.nn.functional as F
from tiny import classifier, points
from torch import nn
from torch.optim import AdamW

ACCUM = 4
student, teacher = classifier(), classifier(nn.BatchNorm1d(8)).eval()
optimizer = AdamW(student.parameters(), lr=0.01)
for i, (inputs, _) in enumerate(points()):
    with torch.no_grad():
        wanted = teacher(inputs).softmax(1)
    loss = F.kl_div(student(inputs).log_softmax(1), wanted, reduction="batchmean")
    (loss / ACCUM).backward()
    if (i + 1) % ACCUM == 0:
        optimizer.step()
        optimizer.zero_grad()
