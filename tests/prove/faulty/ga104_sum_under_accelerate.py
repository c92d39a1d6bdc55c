import torch.nn.functional as F
from accelerate import Accelerator
from tiny import language_model, text
from torch.optim import SGD

ACCUM = 4
accelerator = Accelerator(gradient_accumulation_steps=ACCUM, cpu=True)
model = language_model()
model, optimizer = accelerator.prepare(model, SGD(model.parameters(), lr=0.1))
batches = text()
for start in range(0, len(batches), ACCUM):
    window = batches[start : start + ACCUM]
    targets = sum(int((labels != -100).sum()) for _, labels in window)
    for ids, labels in window:
        with accelerator.accumulate(model):
            summed = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
            accelerator.backward(summed / targets)
            optimizer.step()
            optimizer.zero_grad()
