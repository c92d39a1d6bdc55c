"""Two losses of one forward, each with a backward of its own."""

import torch.nn.functional as F
from tiny import classifier, points
from torch import nn
from torch.optim import SGD

model = classifier(nn.BatchNorm1d(8))
optimizer = SGD(model.parameters(), lr=0.1)
for inputs, labels in points(size=16):
    optimizer.zero_grad()
    outputs = model(inputs)
    F.cross_entropy(outputs, labels).backward(retain_graph=True)
    (0.1 * outputs.pow(2).mean()).backward()
    optimizer.step()
