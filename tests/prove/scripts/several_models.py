"""Two models against one another, a function with a gradient of its own, a penalty on gradients, a loss in place."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, values: torch.Tensor) -> torch.Tensor:
        return values.clone()

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        return -0.5 * gradient


torch.manual_seed(4)
model = nn.ModuleList([nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)), nn.Linear(4, 1)])
maker, critic = model
optimizers = [torch.optim.Adam(each.parameters(), lr=0.01) for each in model]
for _ in range(6):
    for optimizer in optimizers:
        optimizer.zero_grad()
    for _ in range(2):
        true, made = torch.randn(8, 4), maker(torch.randn(8, 4))
        between = (true + made).detach().requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        loss = F.binary_cross_entropy_with_logits(critic(true), torch.ones(8, 1))
        loss += F.binary_cross_entropy_with_logits(critic(Reversed.apply(made)), torch.zeros(8, 1))
        loss /= 2
        (loss + F.mse_loss(slope.norm(dim=1), torch.ones(8))).backward()
    for optimizer in optimizers:
        optimizer.step()
