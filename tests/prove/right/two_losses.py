"""Two tasks with a weight each, one backward: the masses are those weights, over equal micro-batches."""

import torch
import torch.nn.functional as F
from tiny import points
from torch import nn
from torch.optim import Adam

ACCUM = 4
torch.manual_seed(0)
trunk, classes, value = nn.Linear(5, 8), nn.Linear(8, 3), nn.Linear(8, 1)
optimizer = Adam([*trunk.parameters(), *classes.parameters(), *value.parameters()], lr=0.01)
for i, (inputs, labels) in enumerate(points()):
    hidden = trunk(inputs).tanh()
    first = F.cross_entropy(classes(hidden), labels)
    second = F.mse_loss(value(hidden).squeeze(1), inputs.sum(1))
    ((first + 0.5 * second) / ACCUM).backward()
    if (i + 1) % ACCUM == 0:
        optimizer.step()
        optimizer.zero_grad()
