"""Two networks with an optimizer each, stepped in turn, as an adversarial pair is trained."""

import torch
import torch.nn.functional as F
from tiny import points
from torch import nn
from torch.optim import Adam

torch.manual_seed(0)
maker, judge = nn.Linear(5, 5), nn.Linear(5, 1)
of_maker, of_judge = Adam(maker.parameters(), lr=0.01), Adam(judge.parameters(), lr=0.01)
for real, _ in points():
    of_judge.zero_grad()
    F.binary_cross_entropy_with_logits(judge(real), torch.ones(len(real), 1)).backward()
    F.binary_cross_entropy_with_logits(judge(maker(real).detach()), torch.zeros(len(real), 1)).backward()
    of_judge.step()
    of_maker.zero_grad()
    F.binary_cross_entropy_with_logits(judge(maker(real)), torch.ones(len(real), 1)).backward()
    of_maker.step()
