import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import SGD

ACCUM = 4
model = classifier()
optimizer = SGD(model.parameters(), lr=0.1)
steps = 0
for inputs, labels in points(60):
    (F.cross_entropy(model(inputs), labels) / ACCUM).backward()
    if steps % ACCUM == 0:
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
