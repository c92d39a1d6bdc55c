"""Two backward calls a step: BatchNorm, one to climb, one at the top, with the gradients cleared between them."""

import torch
import torch.nn.functional as F
from tiny import classifier, points
from torch import nn
from torch.optim import SGD

model = classifier(nn.BatchNorm1d(8))
optimizer = SGD(model.parameters(), lr=0.1)
for inputs, labels in points(size=16):
    F.cross_entropy(model(inputs), labels).backward()
    with torch.no_grad():
        moves = [0.05 * each.grad / each.grad.norm() for each in model.parameters()]
        for parameter, move in zip(model.parameters(), moves, strict=True):
            parameter.add_(move)
    optimizer.zero_grad()
    F.cross_entropy(model(inputs), labels).backward()
    with torch.no_grad():
        for parameter, move in zip(model.parameters(), moves, strict=True):
            parameter.sub_(move)
    optimizer.step()
    optimizer.zero_grad()
