from contextlib import nullcontext

import torch.distributed as dist
import torch.nn.functional as F
from tiny import language_model, text
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

ACCUM = 2
dist.init_process_group("gloo")
model = DistributedDataParallel(language_model())
optimizer = AdamW(model.parameters(), lr=0.01)
for i, (ids, labels) in enumerate(text()[dist.get_rank() :: 2]):
    last = (i + 1) % ACCUM == 0
    with nullcontext() if last else model.no_sync():
        loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100)
        (loss / ACCUM).backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
