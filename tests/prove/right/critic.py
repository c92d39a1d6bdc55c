"""A critic of its own loss, trained three times for each step of the other network."""

import torch
from tiny import points
from torch import nn
from torch.optim import RMSprop

torch.manual_seed(0)
maker, critic = nn.Linear(5, 5), nn.Linear(5, 1)
of_maker, of_critic = RMSprop(maker.parameters(), lr=0.01), RMSprop(critic.parameters(), lr=0.01)
for i, (real, _) in enumerate(points(24)):
    of_critic.zero_grad()
    (critic(maker(torch.randn(4, 5)).detach()).mean() - critic(real).mean()).backward()
    of_critic.step()
    if i % 3 == 2:
        of_maker.zero_grad()
        (-critic(maker(torch.randn(4, 5))).mean()).backward()
        of_maker.step()
