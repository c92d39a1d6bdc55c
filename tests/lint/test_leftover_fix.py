"""Where the fix of leftover-window is safe, unsafe, or not offered."""

import pytest

from firstfault.lint import Workspace, lint

SCRIPT = """\
from torch.utils.data import DataLoader


def train(model, data, criterion, optimizer, scheduler, steps, epochs):
    loader = DataLoader(data, 4)
    for epoch in range(epochs):
        total = 0.0
        for i, (inputs, targets) in enumerate(loader):
            loss = criterion(model(inputs), targets)
            loss = loss / steps
            loss.backward()
            if (i + 1) % steps == 0:
                optimizer.step()
                optimizer.zero_grad()
            total += loss.item()
        print(total)
"""


def fixes(source: str) -> list[str]:
    found = [each for each in lint(source, "/p/train.py", Workspace()) or [] if each.code == "GA201"]
    assert len(found) == 1, "the fault must be found"
    return [each.applicability for each in found[0].fixes]


def test_the_plain_script_has_a_safe_fix() -> None:
    assert fixes(SCRIPT) == ["safe"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    loader = DataLoader(data, 4)\n", "    loader = data\n"),
        ("                optimizer.step()\n", "                optimizer.step()\n                scheduler.step()\n"),
        ("print(total)", "print(total * steps)"),
        ("            loss = loss / steps\n", ""),
    ],
)
def test_unsafe(old: str, new: str) -> None:
    assert old in SCRIPT
    assert fixes(SCRIPT.replace(old, new)) == ["unsafe"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("loss / steps", "loss / float(steps)"),
        ("total += loss.item()", "total += i * steps"),
        ("            if (i", "            if (i + 1) % steps != 0:\n                pass\n            if (i"),
        ("if (i + 1) % steps == 0:", "if (i + 1) % steps == 0 and total > 0:"),
        ("loss.backward()", "accelerator.backward(loss)"),
    ],
)
def test_no_fix(old: str, new: str) -> None:
    assert old in SCRIPT
    assert fixes(SCRIPT.replace(old, new)) == []
