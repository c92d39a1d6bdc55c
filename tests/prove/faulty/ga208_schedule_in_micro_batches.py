import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import SGD
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader

ACCUM = 4
EPOCHS = 2
model = classifier()
optimizer = SGD(model.parameters(), lr=0.1)
loader = DataLoader(points(11), batch_size=None)
scheduler = OneCycleLR(optimizer, 0.1, total_steps=EPOCHS * len(loader))
for _ in range(EPOCHS):
    for i, (inputs, labels) in enumerate(loader):
        size = min(ACCUM, len(loader) - i // ACCUM * ACCUM)
        (F.cross_entropy(model(inputs), labels) / size).backward()
        if (i + 1) % ACCUM == 0 or i + 1 == len(loader):
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
