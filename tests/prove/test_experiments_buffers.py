"""What a model keeps outside of its state dictionary is no gradient of the window before."""

from experiment import codes, proved

PROBE = """
import torch
import torch.nn.functional as F
from torch import nn


class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("angles", torch.linspace(0.1, 0.7, 6), persistent=False)
        self.out = nn.Linear(6, 4)

    def forward(self, inputs):
        return self.out(inputs * self.angles)


def build():
    return Turned()


def batch(n):
    return torch.randn(n, 6), torch.randint(0, 4, (n,))


def accumulate(model, micro_batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, labels in micro_batches:
        (F.cross_entropy(model(inputs), labels) / len(micro_batches)).backward()
    optimizer.step()
    CLEAR
    model.angles = model.angles * 1.001
"""


def test_buffers_that_no_state_dictionary_holds_go_along_into_the_next_window(tmp_path):
    assert codes(proved(tmp_path, PROBE.replace("CLEAR", "optimizer.zero_grad()"))) == []


def test_gradients_that_stay_are_still_found(tmp_path):
    assert codes(proved(tmp_path, PROBE.replace("CLEAR", "pass"))) == ["loop-fault"]
