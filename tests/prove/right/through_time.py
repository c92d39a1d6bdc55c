"""A step for every piece of a sequence, the state cut between them."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import RMSprop

torch.manual_seed(0)
cell, head = nn.GRU(4, 6, batch_first=True), nn.Linear(6, 5)
optimizer = RMSprop([*cell.parameters(), *head.parameters()], lr=0.01)
inputs, labels = torch.randn(3, 24, 4), torch.randint(0, 5, (3, 24))
state = None
for start in range(0, 24, 4):
    hidden, state = cell(inputs[:, start : start + 4], state)
    state = state.detach()
    optimizer.zero_grad()
    F.cross_entropy(head(hidden).flatten(0, 1), labels[:, start : start + 4].flatten()).backward()
    nn.utils.clip_grad_norm_(cell.parameters(), 0.5)
    optimizer.step()
