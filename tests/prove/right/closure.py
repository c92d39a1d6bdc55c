"""An optimizer that runs its closure several times in a step."""

import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import LBFGS

model = classifier()
optimizer = LBFGS(model.parameters(), max_iter=3)
for inputs, labels in points():

    def closure(inputs=inputs, labels=labels):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        return loss

    optimizer.step(closure)
