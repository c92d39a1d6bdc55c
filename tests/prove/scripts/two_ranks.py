"""120 targets on one rank, 40 on the other."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
number = 120 if dist.get_rank() == 0 else 40
for _ in range(50):
    loss = F.cross_entropy(model(torch.randint(0, 50, (number,))), torch.randint(0, 50, (number,)))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
