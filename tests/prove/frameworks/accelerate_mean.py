"""accumulate() with a mean of each micro-batch: accelerate divides by their number."""

import torch.nn.functional as F
from accelerate import Accelerator
from tiny import language_model, text
from torch.optim import SGD

accelerator = Accelerator(gradient_accumulation_steps=4, cpu=True)
model = language_model()
model, optimizer = accelerator.prepare(model, SGD(model.parameters(), lr=0.1))
for ids, labels in text():
    with accelerator.accumulate(model):
        loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
