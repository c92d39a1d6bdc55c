import torch.distributed as dist
import torch.nn.functional as F
from tiny import classifier, points
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

ACCUM = 4
dist.init_process_group("gloo")
model = DistributedDataParallel(classifier())
optimizer = SGD(model.parameters(), lr=0.1)
for i, (inputs, labels) in enumerate(points(24)[dist.get_rank() :: 2]):
    (F.cross_entropy(model(inputs), labels) / ACCUM).backward()
    if (i + 1) % ACCUM == 0:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
