"""A small DDP job on the CPU with one known fault in one known rank: ``job.py FAULT CULPRIT``.

A line with ``# fault`` is where the user's code fails; ``test_faults.py`` compares the diagnosis with these lines.
"""

import faulthandler
import os
import resource
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

FAULT, CULPRIT = sys.argv[1], int(sys.argv[2])
# A machine under load starts slowly; no fault of this job waits for this limit.
PATIENCE = timedelta(seconds=120)
ATTEMPT = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


class Gauges(Dataset):
    """Readings of water gauges; one row of the culprit's share lacks its level."""

    def __init__(self, rank):
        self.rows = [{"flow": torch.randn(6), "level": torch.tensor(i % 3)} for i in range(24)]
        self.broken = rank == CULPRIT
        if self.broken and FAULT == "worker-key":
            del self.rows[9]["level"]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        if self.broken and FAULT == "worker-killed" and index == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        row = self.rows[index]
        return row["flow"], row["level"]  # fault worker-key


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 12)
        self.head = nn.Linear(12, 3)
        if FAULT == "unused":
            self.spare = nn.Linear(12, 3)

    def forward(self, flow):
        return self.head(self.body(flow).relu())


def parse_height(text):
    try:
        return float(text)
    except ValueError as error:
        raise RuntimeError(f"height of gauge 12 is no number: {text}") from error  # fault chain


def strike(rank, model):
    """The fault, in the culprit's third step."""
    if FAULT in ("value", "spawn", "restart-always") or (FAULT == "restart-once" and ATTEMPT == 0):
        raise ValueError(f"gauge 7 reports level -4 in attempt {ATTEMPT}")  # fault value
    if FAULT == "chain":
        parse_height("n/a")
    if FAULT == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "segfault":
        faulthandler.enable()
        import ctypes

        ctypes.string_at(0)  # fault segfault
    if FAULT == "disk-full":
        save(model, rank)
    if FAULT == "leave":
        print(f"rank {rank}: nothing left to do", flush=True)
        sys.exit(0)


def save(model, rank):
    """A disk with room for 40 KB: what would signal the limit is ignored, as on a disk that is really full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
    state = {"model": model.state_dict(), "history": torch.zeros(100_000)}
    torch.save(state, Path(os.environ["LAB"]) / f"gauges-{rank}.pt")  # fault disk-full


def train(rank):
    model = DistributedDataParallel(Network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Gauges(rank), batch_size=4, num_workers=1 if FAULT.startswith("worker") else 0)
    for step, (flow, level) in enumerate(loader):
        if step == 3 and rank == CULPRIT:
            strike(rank, model)
        loss = nn.functional.cross_entropy(model(flow), level)  # fault unused
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print("training finished", flush=True)


def exchange(rank):
    """Collectives without DDP: one rank hangs before a barrier, or calls another collective than all others."""
    seen = torch.ones(4)
    for step in range(4):
        dist.all_reduce(seen)
        if rank == 0:
            print(f"step {step} seen {int(seen[0])}", flush=True)
    if FAULT == "hang":
        if rank == CULPRIT:
            time.sleep(25)
        dist.monitored_barrier(timeout=timedelta(seconds=8))  # fault hang
    if FAULT == "mismatch" and rank == CULPRIT:
        dist.broadcast(seen, src=CULPRIT)
    dist.all_reduce(seen)


def spawned(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    run()


def run():
    dist.init_process_group("gloo", timeout=PATIENCE)
    rank = dist.get_rank()
    torch.manual_seed(rank)
    if FAULT in ("hang", "mismatch"):
        exchange(rank)
    else:
        train(rank)
    dist.destroy_process_group()


def main():
    if FAULT == "spawn":
        torch.multiprocessing.spawn(spawned, args=(int(sys.argv[3]),), nprocs=2)
    else:
        run()
    # A run that went well ends here: taking the process apart while a thread of gloo is at work would abort it.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
