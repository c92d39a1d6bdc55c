"""A judge with BatchNorm that sees real and made samples one after the other, its loss in a function of its own."""

import torch
import torch.nn.functional as F
from tiny import points
from torch import nn
from torch.optim import Adam


def verdict_loss(scores, real):
    wanted = torch.ones_like(scores) if real else torch.zeros_like(scores)
    return F.binary_cross_entropy_with_logits(scores, wanted)


torch.manual_seed(0)
maker = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 5))
judge = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
of_maker, of_judge = Adam(maker.parameters(), lr=0.01), Adam(judge.parameters(), lr=0.01)
for real, _ in points(size=16):
    made = maker(torch.randn(16, 5))
    of_judge.zero_grad()
    verdict_loss(judge(real), True).backward()
    verdict_loss(judge(made.detach()), False).backward()
    of_judge.step()
    of_maker.zero_grad()
    verdict_loss(judge(made), True).backward()
    of_maker.step()
