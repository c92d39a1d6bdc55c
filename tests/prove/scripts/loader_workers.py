"""Loaders fork; their workers compute a loss of their own, and validate in between."""

import torch
import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import SGD
from torch.utils.data import DataLoader


def scored(rows: list) -> tuple:
    inputs, labels = rows[0]
    weights = torch.zeros(5, 3, requires_grad=True)
    F.cross_entropy(inputs @ weights, labels).backward()
    return inputs, labels


model = classifier()
optimizer = SGD(model.parameters(), lr=0.1)
loader = DataLoader(points(9), batch_size=1, num_workers=1, collate_fn=scored)
for i, (inputs, labels) in enumerate(loader):
    (F.cross_entropy(model(inputs), labels) / 3).backward()
    if (i + 1) % 3 == 0:
        with torch.no_grad():
            F.cross_entropy(model(inputs), labels)
        optimizer.step()
        optimizer.zero_grad()
