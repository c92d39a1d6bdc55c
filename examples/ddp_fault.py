"""Four ranks train a small model, and the data of rank 2 holds one clip of a kind that has no label.

What it prints when it fails is kept beside it: `logs/` (one folder a rank) and `run.log` (one console for all).

    torchrun --nproc-per-node 4 --redirects 3 --log-dir logs ddp_fault.py
    torchrun --nproc-per-node 4 --tee 3 --log-dir teed ddp_fault.py 2>&1 | tee run.log

The other ranks wait for the gradients of rank 2 until its connection closes, and then print errors of their own.
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

LABELS = {"speech": 0, "music": 1, "noise": 2, "silence": 3}


class Clips(Dataset):
    def __init__(self, count):
        self.kinds = [list(LABELS)[index % len(LABELS)] for index in range(count)]
        self.kinds[58] = "laughter"

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        features = torch.full((16,), float(index % 7))
        return features, LABELS[self.kinds[index]]


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    clips = Clips(128)
    sampler = DistributedSampler(clips, shuffle=False)
    loader = DataLoader(clips, batch_size=4, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(16, len(LABELS)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    print(f"rank {rank} of {dist.get_world_size()}: {len(loader)} batches", flush=True)
    for step, (features, labels) in enumerate(loader):
        loss = F.cross_entropy(model(features), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(float(os.environ.get("STEP_SECONDS", "0.2")))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
