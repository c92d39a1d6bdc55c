"""Goes on whatever happens, so the end has to be forced."""

import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import SGD

model = classifier()
optimizer = SGD(model.parameters(), lr=0.1)
for inputs, labels in points(40):
    try:
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    except BaseException:
        continue
raise RuntimeError("the script went on to its end")
