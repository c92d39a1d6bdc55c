"""Several passes over collected samples in small batches, two losses with a weight each, a step for each batch."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import Adam

torch.manual_seed(0)
actor, critic = nn.Linear(4, 3), nn.Linear(4, 1)
optimizer = Adam([*actor.parameters(), *critic.parameters()], lr=0.01)
states, actions, gains, returns = torch.randn(16, 4), torch.randint(0, 3, (16,)), torch.randn(16), torch.randn(16)
for _ in range(3):
    for part in torch.randperm(16).split(4):
        likely = actor(states[part]).log_softmax(1).gather(1, actions[part, None])[:, 0]
        value = F.mse_loss(critic(states[part])[:, 0], returns[part])
        optimizer.zero_grad()
        (0.5 * value - (likely * gains[part]).mean()).backward()
        nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
        optimizer.step()
