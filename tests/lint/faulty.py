"""A script with one fault that has a safe fix, for tests of what is around the rules."""

import json
from typing import Any

HEAD = "import torch.nn.functional as F\n\nSTEPS = 8\n"
LOOP = """\
def fit(net, endless_batches, optimizer):
    optimizer.zero_grad()
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
SCRIPT = f"{HEAD}\n\n{LOOP}"
FAULT = "loss = loss / STEPS"


def notebook(*cells: str, **more: Any) -> dict[str, Any]:
    code = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": cell.splitlines(keepends=True)} for cell in cells
    ]
    return {"cells": [{"cell_type": "markdown", "source": ["# Title"]}, *code], "nbformat": 4, **more}


def notebook_text(*cells: str, indent: int | None = 1) -> str:
    return json.dumps(notebook(*cells), indent=indent) + "\n"
