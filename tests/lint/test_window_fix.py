"""Where the fix of mean-of-means is not offered, because the text does not show that it would be right."""

import pytest

from firstfault.lint import Finding, Workspace, lint

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_


def train(model, loader, optimizer, steps):
    for i, (ids, labels) in enumerate(loader):
        labels[ids == 0] = -100
        loss = F.cross_entropy(model(ids), labels)
        loss = loss / steps
        loss.backward()
        if (i + 1) % steps == 0:
            optimizer.step()
            optimizer.zero_grad()
"""


def finding(source: str) -> Finding:
    found = [each for each in lint(source, "/p/train.py", Workspace()) or [] if each.code == "GA101"]
    assert len(found) == 1, "the fault must be found"
    return found[0]


def test_the_plain_script_has_a_fix() -> None:
    assert [each.title for each in finding(SCRIPT).fixes] == ["Weigh every token of the window the same"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("loss = loss / steps\n", "loss = loss / steps\n        loss = loss + model.penalty()\n"),
        ("F.cross_entropy(model(ids), labels)", "F.cross_entropy(model(ids), labels, weight=model.weights)"),
        ("F.cross_entropy(model(ids), labels)", "F.cross_entropy(model(ids), pick(labels))"),
        ("        loss.backward()\n", "        loss.backward()\n        model.penalty().backward()\n"),
        ("        loss.backward()\n", "        loss.backward()\n        clip_grad_norm_(model.parameters(), 1.0)\n"),
        ("        loss = loss / steps\n", "        if loss > 9:\n            continue\n        loss = loss / steps\n"),
        (
            "            optimizer.step()\n",
            "            model.head.weight.grad.mul_(2)\n            optimizer.step()\n",
        ),
        ("            optimizer.step()\n", "            optimizer.step()\n            other_optimizer.step()\n"),
        (
            "        loss.backward()\n",
            "        try:\n            loss.backward()\n        except RuntimeError:\n            pass\n",
        ),
        ("import torch\n", "import torch\nSTRATEGY = 'deepspeed_stage_2'\n"),
        ("    for i", "    model = torch.nn.DataParallel(model)\n    for i"),
        ("        loss = loss / steps\n        loss.backward()\n", "        loss = loss / steps; loss.backward()\n"),
        ("        if (i + 1)", "        if i == 7:\n            optimizer.step()\n        if (i + 1)"),
    ],
)
def test_no_fix(old: str, new: str) -> None:
    assert old in SCRIPT
    assert finding(SCRIPT.replace(old, new)).fixes == ()


def test_a_count_that_starts_again_while_gradients_are_left_over_is_unsafe() -> None:
    assert [each.applicability for each in finding(SCRIPT).fixes] == ["unsafe"]
    once = SCRIPT + "\n\ntrain(None, None, None, 4)\n"
    assert [each.applicability for each in finding(once).fixes] == ["safe"]
    every_epoch = SCRIPT + "\n\nfor epoch in range(3):\n    train(None, None, None, 4)\n"
    assert [each.applicability for each in finding(every_epoch).fixes] == ["unsafe"]
    zeroed = SCRIPT.replace("    for i", "    optimizer.zero_grad()\n    for i")
    assert [each.applicability for each in finding(zeroed).fixes] == ["safe"]
