"""BatchNorm without accumulation, on batches that are large enough; evaluated between steps."""

import torch
import torch.nn.functional as F
from tiny import images, pictures_model
from torch import nn
from torch.optim import SGD

model = pictures_model(nn.BatchNorm2d(8))
optimizer = SGD(model.parameters(), lr=0.1)
for pictures, labels in images():
    model.train()
    optimizer.zero_grad()
    F.cross_entropy(model(pictures), labels).backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        model(pictures)
