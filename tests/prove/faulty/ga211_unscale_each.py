import torch
import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import SGD

ACCUM = 4
model = classifier()
optimizer = SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for i, (inputs, labels) in enumerate(points()):
    scaler.scale(F.cross_entropy(model(inputs), labels) / ACCUM).backward()
    scaler.unscale_(optimizer)
    if (i + 1) % ACCUM == 0:
        scaler.step(optimizer)
        optimizer.zero_grad()
    scaler.update()
