"""A model that is spread over two ranks: weights of targets are read as ever, gradients are not."""

import torch.distributed as dist
import torch.nn.functional as F
from tiny import language_model, text
from torch.distributed.fsdp import fully_shard
from torch.optim import SGD

ACCUM = 2
dist.init_process_group("gloo")
model = language_model()
fully_shard(model)
optimizer = SGD(model.parameters(), lr=0.1)
for i, (ids, labels) in enumerate(text()[dist.get_rank() :: 2]):
    model.set_requires_gradient_sync((i + 1) % ACCUM == 0)
    loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100)
    (loss / ACCUM).backward()
    if (i + 1) % ACCUM == 0:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
