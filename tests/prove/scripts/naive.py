"""A window holds 10 targets in one micro-batch and 90 in the next."""

import torch
import torch.nn.functional as F
from torch import nn

ACCUM = 2
model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = []
for number in (10, 90) * 4:
    labels = torch.full((1, 100), -100)
    labels[0, :number] = torch.randint(0, 50, (number,))
    batches.append((torch.randint(0, 50, (1, 100)), labels))

for i, (inputs, labels) in enumerate(batches):
    loss = F.cross_entropy(model(inputs).flatten(0, 1), labels.flatten(), ignore_index=-100) / ACCUM
    loss.backward()
    if (i + 1) % ACCUM == 0:
        optimizer.step()
        optimizer.zero_grad()
print("every batch was used")
