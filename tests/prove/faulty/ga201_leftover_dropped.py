import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import SGD
from torch.utils.data import DataLoader

ACCUM = 4
model = classifier()
optimizer = SGD(model.parameters(), lr=0.1)
loader = DataLoader(points(10), batch_size=None)
for _ in range(2):
    optimizer.zero_grad()
    for i, (inputs, labels) in enumerate(loader):
        (F.cross_entropy(model(inputs), labels) / ACCUM).backward()
        if (i + 1) % ACCUM == 0:
            optimizer.step()
            optimizer.zero_grad()
