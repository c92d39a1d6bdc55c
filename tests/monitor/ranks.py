"""Two ranks of one model, each with a monitor; prints what each of them logged and warned of, as JSON.

python ranks.py PORT
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from firstfault.monitor import monitor

SIZES = ([30, 10], [90, 70])  # of each rank's micro-batches


def train(rank: int, whose: str) -> dict[str, Any]:
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    divisor = sum(SIZES[rank]) if whose == "own" else sum(map(sum, SIZES)) / 2
    logged = []
    with monitor(model, every=1, log=lambda values, step: logged.append((step, values))) as watching:
        for _ in range(5):
            for number, size in enumerate(SIZES[rank]):
                with model.no_sync() if not number else torch.enable_grad():
                    x, y = torch.randn(size, 4), torch.randint(0, 3, (size,))
                    (F.cross_entropy(model(x), y, reduction="sum") / divisor).backward()
            optimizer.step()
            optimizer.zero_grad()
    return {"logged": logged, "warnings": watching.warnings}


def main(port: str) -> None:
    torch.set_num_threads(1)
    logging.disable()
    reading, writing = os.pipe()
    child = os.fork()
    rank = 0 if child else 1
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo")
    found = {whose: train(rank, whose) for whose in ("all", "own")}
    dist.barrier()
    if not child:
        os.write(writing, json.dumps(found).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as other:
        print(json.dumps([found, json.load(other)]))
    os.waitpid(child, 0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
