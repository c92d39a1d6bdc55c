"""In-batch negatives without accumulation: each row sees the whole batch."""

import torch
import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import Adam

model = classifier()
optimizer = Adam(model.parameters(), lr=0.01)
for inputs, _ in points(size=6):
    one, other = F.normalize(model(inputs), dim=1), F.normalize(model(inputs + 0.1), dim=1)
    scores = one @ other.T / 0.07
    wanted = torch.arange(len(inputs))
    optimizer.zero_grad()
    ((F.cross_entropy(scores, wanted) + F.cross_entropy(scores.T, wanted)) / 2).backward()
    optimizer.step()
