import torch.nn.functional as F
from accelerate import Accelerator
from tiny import classifier, points
from torch.optim import SGD

ACCUM = 4
accelerator = Accelerator(gradient_accumulation_steps=ACCUM, cpu=True)
model = classifier()
model, optimizer = accelerator.prepare(model, SGD(model.parameters(), lr=0.1))
for inputs, labels in points():
    with accelerator.accumulate(model):
        accelerator.backward(F.cross_entropy(model(inputs), labels) / ACCUM)
        optimizer.step()
        optimizer.zero_grad()
