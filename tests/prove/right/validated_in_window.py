"""A second loader is run through again and again, in the middle of windows."""

import torch
import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import SGD
from torch.utils.data import DataLoader

ACCUM = 4
model = classifier()
optimizer = SGD(model.parameters(), lr=0.1)
training, validation = DataLoader(points(12), batch_size=None), DataLoader(points(3), batch_size=None)
for i, (inputs, labels) in enumerate(training):
    (F.cross_entropy(model(inputs), labels) / ACCUM).backward()
    if i % 3 == 1:
        with torch.no_grad():
            seen = sum(float(F.cross_entropy(model(each), wanted)) for each, wanted in validation)
    if (i + 1) % ACCUM == 0:
        optimizer.step()
        optimizer.zero_grad()
