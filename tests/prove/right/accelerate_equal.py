"""accelerate with a mean over micro-batches of the same size: everything stands inside accumulate()."""

import torch.nn.functional as F
from accelerate import Accelerator
from tiny import classifier, points
from torch.optim import SGD
from torch.optim.lr_scheduler import LinearLR

accelerator = Accelerator(gradient_accumulation_steps=4, cpu=True)
model = classifier()
optimizer = SGD(model.parameters(), lr=0.1)
model, optimizer, scheduler = accelerator.prepare(model, optimizer, LinearLR(optimizer, total_iters=3))
for inputs, labels in points():
    with accelerator.accumulate(model):
        accelerator.backward(F.cross_entropy(model(inputs), labels))
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
