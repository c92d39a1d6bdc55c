"""One micro-batch a step: nothing is accumulated, a mean is a mean."""

import torch.nn.functional as F
from tiny import language_model, text
from torch.optim import Adam

model = language_model()
optimizer = Adam(model.parameters(), lr=0.01)
for ids, labels in text():
    optimizer.zero_grad()
    F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100).backward()
    optimizer.step()
