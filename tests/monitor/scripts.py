"""Runs scripts of tests/prove under a monitor, each in a fork of this process; prints their warnings as JSON.

The scripts do not know of it: the model it is given has the parameters of all optimizers.
"""

import json
import logging
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from firstfault.monitor import monitor

parameters: dict[torch.Tensor, None] = {}


class Model(nn.Module):
    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        return iter(list(parameters))

    def modules(self) -> Iterator[nn.Module]:
        yield from (self, nn.BatchNorm1d(1))


def known(original: Any) -> Any:
    def add_param_group(optimizer: Any, group: dict[str, Any]) -> None:
        original(optimizer, group)
        parameters.update(dict.fromkeys(optimizer.param_groups[-1]["params"]))

    return add_param_group


def run(script: str) -> list[str]:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        watching = monitor(Model(), every=1)
        try:
            with watching:
                runpy.run_path(script, run_name="__main__")
        except BaseException as error:
            watching.warnings.append(f"the script failed: {error!r}")
        os.write(writing, json.dumps(watching.warnings).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    found: list[str] = json.loads(text or '["the script died"]')
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.disable()
    torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)  # the first optimizer imports a thousand modules
    torch.optim.Optimizer.add_param_group = known(torch.optim.Optimizer.add_param_group)  # type: ignore[method-assign]
    print(json.dumps({Path(script).stem: run(script) for script in sys.argv[1:]}))
