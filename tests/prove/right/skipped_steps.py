"""The first gradients overflow: the gradient scaler leaves steps out and lowers its factor."""

import torch
import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import AdamW

ACCUM = 2
model = classifier()
optimizer = AdamW(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126)
for i, (inputs, labels) in enumerate(points(40)):
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(inputs)
    scaler.scale(F.cross_entropy(logits.float(), labels) / ACCUM).backward()
    if (i + 1) % ACCUM == 0:
        scaler.step(optimizer)
        scaler.update(2.0 ** max(10, 126 - 60 * (i // ACCUM + 1)))
        optimizer.zero_grad(set_to_none=False)
