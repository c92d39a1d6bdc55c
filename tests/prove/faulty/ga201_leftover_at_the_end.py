import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import SGD

ACCUM = 4
model = classifier()
optimizer = SGD(model.parameters(), lr=0.1)
for i, (inputs, labels) in enumerate(points(11)):
    (F.cross_entropy(model(inputs), labels) / ACCUM).backward()
    if (i + 1) % ACCUM == 0:
        optimizer.step()
        optimizer.zero_grad()
