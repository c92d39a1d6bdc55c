"""A small DDP job on CPU with one known fault in one known rank; ``record.py`` runs it under torchrun."""

import faulthandler
import logging
import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

FAULT, CULPRIT = sys.argv[1], int(sys.argv[2])


class Readings(Dataset):
    """Rows of a sensor table; row 9 of the culprit's share lacks a column."""

    def __init__(self, rank):
        self.rows = [{"value": torch.randn(8), "label": torch.tensor(i % 3)} for i in range(48)]
        if rank == CULPRIT and FAULT in ("worker-key", "key"):
            del self.rows[9]["label"]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return row["value"], row["label"]


class Classifier(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.head = nn.Linear(16, 3)
        if FAULT == "unused":
            self.spare = nn.Linear(16, 3)

    def forward(self, values):
        return self.head(self.body(values).relu())


def parse_threshold(text):
    try:
        return float(text)
    except ValueError as error:
        raise RuntimeError(f"threshold in calibration.csv is no number: {text}") from error


def strike(rank, step, inputs):
    """The fault, in the culprit's third step."""
    if step != 3 or rank != CULPRIT:
        return inputs
    if FAULT == "value":
        raise ValueError("reading 17 of sensor 4 is out of range")
    if FAULT == "chain":
        parse_threshold("n/a")
    if FAULT == "shape":
        return inputs[:, :7]
    if FAULT == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "segfault":
        faulthandler.enable()
        import ctypes

        ctypes.string_at(0)
    if FAULT == "hang":
        time.sleep(60)
    if FAULT == "leave":
        print(f"rank {rank}: quota used up, leaving", flush=True)
        os._exit(0)
    if FAULT == "exit-code":
        os._exit(5)
    if FAULT == "handled":
        try:
            raise OSError("metrics server did not answer")
        except OSError:
            logging.exception("metrics were not sent, going on")
    return inputs


def main():
    if FAULT == "variable":
        print(os.environ["SENSOR_ROOT"])
    dist.init_process_group("gloo", timeout=timedelta(seconds=6))
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(Classifier(rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    workers = 1 if FAULT == "worker-key" else 0
    loader = DataLoader(Readings(rank), batch_size=4, num_workers=workers)
    for epoch in range(2):
        for step, (values, labels) in enumerate(loader):
            values = strike(rank, step, values) if epoch == 0 else values
            loss = nn.functional.cross_entropy(model(values), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and step % 2 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print("training finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
