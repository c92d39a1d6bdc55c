import torch.nn.functional as F
from tiny import classifier, points
from torch.optim import SGD
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

ACCUM = 4
model = classifier()
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
optimizer = SGD(model.parameters(), lr=0.1)
for i, (inputs, labels) in enumerate(points()):
    (F.cross_entropy(model(inputs), labels) / ACCUM).backward()
    if (i + 1) % ACCUM == 0:
        optimizer.step()
        optimizer.zero_grad()
    average.update_parameters(model)
