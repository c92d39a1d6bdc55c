"""The last window has fewer micro-batches and is divided by their number."""

import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import SGD
from torch.utils.data import DataLoader

ACCUM = 4
model = classifier()
optimizer = SGD(model.parameters(), lr=0.1)
loader = DataLoader(points(10), batch_size=None)
for _ in range(2):
    for i, (inputs, labels) in enumerate(loader):
        size = min(ACCUM, len(loader) - i // ACCUM * ACCUM)
        (F.cross_entropy(model(inputs), labels) / size).backward()
        if (i + 1) % ACCUM == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
