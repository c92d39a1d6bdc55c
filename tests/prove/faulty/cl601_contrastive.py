import torch
import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import SGD

ACCUM = 4
model = classifier()
optimizer = SGD(model.parameters(), lr=0.1)
for i, (inputs, _) in enumerate(points(size=6)):
    one, other = F.normalize(model(inputs), dim=1), F.normalize(model(inputs + 0.1), dim=1)
    loss = F.cross_entropy(one @ other.T / 0.07, torch.arange(len(inputs)))
    (loss / ACCUM).backward()
    if (i + 1) % ACCUM == 0:
        optimizer.step()
        optimizer.zero_grad()
