"""Two ranks, every micro-batch of the same size, gradients shared with the last one of a window."""

from contextlib import nullcontext

import torch.distributed as dist
import torch.nn.functional as F
from tiny import classifier, points
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

ACCUM = 4
dist.init_process_group("gloo")
model = DistributedDataParallel(classifier(nn.LayerNorm(8)))
optimizer = AdamW(model.parameters(), lr=0.01)
for i, (inputs, labels) in enumerate(points(24)[dist.get_rank() :: 2]):
    last = (i + 1) % ACCUM == 0
    with nullcontext() if last else model.no_sync():
        (F.cross_entropy(model(inputs), labels) / ACCUM).backward()
    if last:
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
