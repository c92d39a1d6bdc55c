"""A schedule that is made for micro-batches may step with each of them."""

import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import SGD
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader

ACCUM = 4
model = classifier()
optimizer = SGD(model.parameters(), lr=0.1)
loader = DataLoader(points(), batch_size=None)
scheduler = OneCycleLR(optimizer, 0.1, total_steps=len(loader))
for i, (inputs, labels) in enumerate(loader):
    (F.cross_entropy(model(inputs), labels) / ACCUM).backward()
    if (i + 1) % ACCUM == 0:
        optimizer.step()
        optimizer.zero_grad()
    scheduler.step()
