"""Two optimizers for two parts of a model, stepped together at the end of a window."""

import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import SGD, Adam

ACCUM = 4
model = classifier()
below, above = SGD(model[0].parameters(), lr=0.1), Adam(model[3].parameters(), lr=0.01)
for i, (inputs, labels) in enumerate(points()):
    (F.cross_entropy(model(inputs), labels) / ACCUM).backward()
    if (i + 1) % ACCUM == 0:
        for optimizer in (below, above):
            optimizer.step()
            optimizer.zero_grad()
