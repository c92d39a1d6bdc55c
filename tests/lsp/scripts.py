"""Training scripts with one silent fault each, and what the tests need to know of them."""

MEAN_OF_MEANS = """\
import torch.nn.functional as F

STEPS = 8


def fit(net, endless_batches, optimizer):
    for number, (words, tags) in enumerate(endless_batches):
        tags[words == 0] = -100
        scores = net(words)
        loss = F.cross_entropy(scores.transpose(1, 2), tags, ignore_index=-100)
        loss = loss / STEPS
        loss.backward()
        if (number + 1) % STEPS == 0:
            optimizer.step()
            optimizer.zero_grad()
"""
BATCH_NORM = """\
import torch
from torch import nn

STEPS = 8
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))


def fit(endless_batches, optimizer):
    net.train()
    for number, (images, marks) in enumerate(endless_batches):
        loss = nn.functional.cross_entropy(net(images), marks) / STEPS
        loss.backward()
        if (number + 1) % STEPS == 0:
            optimizer.step()
            optimizer.zero_grad()
"""
UNREADABLE = MEAN_OF_MEANS + "x = = 1\n" * 30  # More than a repair of the line being typed can mend.
CLEAN = "import torch\n\nprint(torch.ones(3))\n"
