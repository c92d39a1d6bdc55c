import torch.nn.functional as F
from accelerate import Accelerator
from tiny import classifier, points
from torch.optim import SGD

accelerator = Accelerator(gradient_accumulation_steps=4, cpu=True)
model = classifier()
model, optimizer = accelerator.prepare(model, SGD(model.parameters(), lr=0.1))
for inputs, labels in points():
    with accelerator.accumulate(model):
        accelerator.backward(F.cross_entropy(model(inputs), labels))
        optimizer.step()
        model.zero_grad()
