"""Two tasks whose gradients are taken one by one, freed of conflict, and put in place by hand."""

import torch
import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import SGD

model = classifier()
optimizer = SGD(model.parameters(), lr=0.1)
parameters = list(model.parameters())
for inputs, labels in points():
    outputs = model(inputs)
    losses = [F.cross_entropy(outputs, labels), F.mse_loss(outputs, torch.ones_like(outputs))]
    taken = []
    for loss in losses:
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        taken.append([each.grad.clone() for each in parameters])
    for parameter, first, second in zip(parameters, *taken, strict=True):
        conflict = (first * second).sum().clamp(max=0) / second.norm() ** 2
        parameter.grad = first - conflict * second + second
    optimizer.step()
