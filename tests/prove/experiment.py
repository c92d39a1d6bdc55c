"""Runs a probe in this process, which has torch already, and judges it; probes are put together from short parts."""

import os
import sys
import textwrap
import traceback
from pathlib import Path
from typing import Any, NoReturn

from firstfault.prove.experiments.verdict import Verdict, judge
from firstfault.prove.experiments.worker import start
from firstfault.prove.experiments.worker.measure import Plan, measure

TAGGER = """
import torch
import torch.nn.functional as F
from torch import nn


class Tagger(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.embed = nn.Embedding(23, 12)
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(12, 7)

    def forward(self, tokens):
        return self.head(self.layers(torch.tanh(self.embed(tokens))))


def build():
    return Tagger()


LENGTHS = [2, 11, 5, 1, 9, 12, 3, 4, 12, 4, 1, 8]


def batch(n):
    tokens = torch.randint(0, 23, (n, 12))
    labels = torch.randint(0, 7, (n, 12))
    for row in range(n):
        labels[row, LENGTHS[row % len(LENGTHS)] :] = -100
    return tokens, labels


def total(model, tokens, labels):
    return F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="sum")


def mean(model, tokens, labels):
    return F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())


def objective(model, batch):
    tokens, labels = batch
    return total(model, tokens, labels), (labels != -100).sum()


def accumulate(model, micro_batches):
    targets = sum((labels != -100).sum() for _, labels in micro_batches)
    for tokens, labels in micro_batches:
        (total(model, tokens, labels) / targets).backward()
"""

RIGHT = ""


def proved(folder: Path, *parts: str, samples: int = 8, micro_batches: int = 4) -> Verdict:
    """The verdict on a probe whose later parts define again what earlier ones did."""
    probe = folder / "probe.py"
    probe.write_text("\n\n".join(textwrap.dedent(part) for part in parts), encoding="utf-8")
    measured: dict[str, Any] = measure(Plan(str(probe), micro_batches, samples))
    return judge(measured)


def codes(verdict: Verdict) -> list[str]:
    return [fault.code for fault in verdict.faults]


class Forked:
    """A child of this process in the place of a fresh interpreter: torch is there already, all else is real."""

    def __init__(self, folder: str, arguments: list[str]) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if not self.pid:
            _become(folder, arguments)

    def poll(self) -> int | None:
        return self._reap(os.WNOHANG)

    def wait(self) -> int | None:
        return self._reap(0)

    def _reap(self, how: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, how)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


def _become(folder: str, arguments: list[str]) -> NoReturn:
    status = 1
    try:
        os.setsid()
        for number, path in ((1, os.devnull), (2, os.path.join(folder, "stderr" + "".join(arguments)))):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
        sys.stdout = sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - until the end
        sys.argv = [start.__file__, folder, *arguments]
        start.main()
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)
