"""Mixed precision: unscaled once, clipped, stepped, updated, where the window ends."""

import torch
import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import AdamW

ACCUM = 4
model = classifier()
optimizer = AdamW(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for i, (inputs, labels) in enumerate(points()):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(inputs), labels) / ACCUM
    scaler.scale(loss).backward()
    if (i + 1) % ACCUM == 0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
