import torch
import torch.distributed as dist
import torch.nn.functional as F
from tiny import language_model, text
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

dist.init_process_group("gloo")
model = DistributedDataParallel(language_model())
optimizer = SGD(model.parameters(), lr=0.1)
for ids, labels in text()[dist.get_rank() :: 2]:
    optimizer.zero_grad()
    targets = (labels != -100).sum()
    dist.all_reduce(targets)
    summed = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
    (summed / targets).backward()
    optimizer.step()
torch.distributed.destroy_process_group()
