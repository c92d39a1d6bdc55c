import torch.nn.functional as F
from tiny import images, pictures_model
from torch import nn
from torch.optim import SGD

ACCUM = 4
model = nn.SyncBatchNorm.convert_sync_batchnorm(pictures_model(nn.BatchNorm2d(8)))
optimizer = SGD(model.parameters(), lr=0.1)
for i, (pictures, labels) in enumerate(images()):
    (F.cross_entropy(model(pictures), labels) / ACCUM).backward()
    if (i + 1) % ACCUM == 0:
        optimizer.step()
        optimizer.zero_grad()
