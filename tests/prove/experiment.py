"""Runs a probe in this process, which has torch already, and judges it; probes are put together from short parts."""

import textwrap
from pathlib import Path
from typing import Any

from firstfault.prove.experiments.verdict import Verdict, judge
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
