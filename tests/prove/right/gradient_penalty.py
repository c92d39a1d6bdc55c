"""A penalty on the gradient of the input, which is differentiated once more."""

import torch
import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import Adam

model = classifier()
optimizer = Adam(model.parameters(), lr=0.01)
for inputs, labels in points():
    inputs = inputs.clone().requires_grad_()
    loss = F.cross_entropy(model(inputs), labels)
    (slope,) = torch.autograd.grad(loss, inputs, create_graph=True)
    optimizer.zero_grad()
    (loss + 0.1 * slope.pow(2).sum()).backward()
    optimizer.step()
