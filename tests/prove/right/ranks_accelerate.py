"""accelerate on two ranks, as its guide has it: the sum, times steps and processes, over the gathered count."""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from tiny import language_model, text
from torch.optim import AdamW

ACCUM = 2
accelerator = Accelerator(gradient_accumulation_steps=ACCUM, cpu=True)
model = language_model()
model, optimizer = accelerator.prepare(model, AdamW(model.parameters(), lr=0.01))
batches = text()[accelerator.process_index :: accelerator.num_processes]
for start in range(0, len(batches), ACCUM):
    window = batches[start : start + ACCUM]
    counted = torch.stack([(labels != -100).sum() for _, labels in window]).sum()
    targets = accelerator.gather(counted).sum()
    for ids, labels in window:
        with accelerator.accumulate(model):
            summed = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
            accelerator.backward(summed * ACCUM * accelerator.num_processes / targets)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
