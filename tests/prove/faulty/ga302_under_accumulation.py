from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from tiny import language_model, text
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

ACCUM = 2
dist.init_process_group("gloo")
model = DistributedDataParallel(language_model())
optimizer = SGD(model.parameters(), lr=0.1)
batches = text()[dist.get_rank() :: 2]
for start in range(0, len(batches), ACCUM):
    window = batches[start : start + ACCUM]
    targets = torch.stack([(labels != -100).sum() for _, labels in window]).sum()
    dist.all_reduce(targets)
    for i, (ids, labels) in enumerate(window):
        with nullcontext() if i + 1 == ACCUM else model.no_sync():
            summed = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
            (summed / targets).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
