"""Accumulation that compares all examples of a step: their features are kept, and each backward makes a part anew."""

import torch
import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import Adam

ACCUM = 3
model = classifier()
optimizer = Adam(model.parameters(), lr=0.01)
data = [inputs for inputs, _ in points(ACCUM * 3, size=4)]
for start in range(0, len(data), ACCUM):
    window = data[start : start + ACCUM]
    optimizer.zero_grad()
    with torch.no_grad():
        kept = [(F.normalize(model(each), dim=1), F.normalize(model(each + 0.1), dim=1)) for each in window]
    for number, inputs in enumerate(window):
        anew = (F.normalize(model(inputs), dim=1), F.normalize(model(inputs + 0.1), dim=1))
        one, other = (torch.cat(each) for each in zip(*kept[:number], anew, *kept[number + 1 :], strict=True))
        F.cross_entropy(one @ other.T / 0.07, torch.arange(len(one))).backward()
    optimizer.step()
