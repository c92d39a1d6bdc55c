"""Imports torch once, then forks for every script that is to be measured: the tests' way around slow imports.

A job is a line of JSON: the script, the folder of its plan, how many ranks, the port where they meet. The child does
what a fresh Python with the probes would do, and the answer is a line of JSON with the exit status of each rank.
"""

import atexit
import hashlib
import json
import os
import runpy
import signal
import sys
import tempfile
import time
import traceback
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel  # noqa: F401 - imported for its children

from firstfault.prove import worker
from firstfault.prove.messages import read_plan

_PATIENCE = 120.0  # seconds for a script, a quarter of it for the ranks that outlive another
_KEPT: list[Any] = []  # what a script left: freeing a process group may wait for a rank that is gone


def main() -> None:
    torch.set_num_threads(1)
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)  # the first optimizer imports a thousand modules
    names = [name for name in os.environ.get("FIRSTFAULT_WARM", "").split(",") if name]
    for name in names:
        __import__(name)
    packages = {name.partition(".")[0] for name in names}
    print(json.dumps({name: sys.modules[name].__version__ for name in packages}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        children = [_fork(job, rank) for rank in range(job["ranks"])]
        statuses = _statuses(children)
        print(json.dumps(statuses), flush=True)
    os._exit(0)  # nothing here is worth tidying up, and libraries take their time


def _statuses(children: list[int]) -> list[int]:
    """How each ended. A rank that waits for one that is gone would wait for ever: it is ended after a while."""
    found: dict[int, int] = {}
    deadline = time.monotonic() + _PATIENCE
    while len(found) < len(children):
        for child in set(children) - set(found):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                found[child] = os.waitstatus_to_exitcode(status)
                deadline = min(deadline, time.monotonic() + _PATIENCE / 4)
            elif time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    return [found[child] for child in children]


def _fork(job: dict[str, Any], rank: int) -> int:
    child = os.fork()
    if child:
        return child
    try:
        status = _run(job, rank)
    except BaseException:
        traceback.print_exc()
        status = 1
    os._exit(status)


def _run(job: dict[str, Any], rank: int) -> int:
    output = os.open(os.path.join(job["folder"], f"output{rank}"), os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if job["ranks"] > 1:
        world = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": job["ranks"], "MASTER_PORT": job["port"]}
        os.environ.update({"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in world.items()}})
    tempfile.tempdir = job["folder"]  # it is removed with what a script leaves behind
    plan = read_plan(job["folder"])
    assert plan is not None
    atexit._clear()
    if job["probes"]:
        worker.start(plan)
    sys.argv = [job["script"]]
    status = 0
    try:
        left = runpy.run_path(job["script"], run_name="__main__")
        _KEPT.append(left)
        _write_state(os.path.join(job["folder"], f"state{rank}"), left.get("model"))
    except SystemExit as ended:
        status = int(ended.code or 0)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return status


def _write_state(path: str, model: Any) -> None:
    """What the training came to, to the last bit, and where the random numbers stand."""
    state = model.state_dict() if isinstance(model, torch.nn.Module) else {}
    numbers = [torch.get_rng_state(), *(each.detach().reshape(-1) for each in state.values())]
    with open(path, "w") as file:
        file.write(hashlib.sha256(b"".join(each.view(torch.uint8).numpy().tobytes() for each in numbers)).hexdigest())


if __name__ == "__main__":
    main()
