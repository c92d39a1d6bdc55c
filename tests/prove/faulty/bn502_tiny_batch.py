import torch.nn.functional as F
from tiny import classifier, points
from torch import nn
from torch.optim import SGD

model = classifier(nn.BatchNorm1d(8))
optimizer = SGD(model.parameters(), lr=0.1)
for inputs, labels in points(size=2):
    optimizer.zero_grad()
    F.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
