"""Runs a faulty job under a real launcher and keeps what it prints. Every process that it starts ends with the run."""

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

JOB = Path(__file__).with_name("job.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
# A hundred times what a run takes on a quiet machine: reached only where something hangs that should not.
LIMIT = 300.0
# What a launcher or an earlier run may have left in the environment.
FOREIGN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCH_DISTRIBUTED_DEBUG")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def run(folder: Path, commands: Sequence[Sequence[str]], **environment: str) -> None:
    """Run the commands at the same time; each writes its output to ``node-N.log`` of the folder."""
    mark = str(uuid.uuid4())
    known = {key: each for key, each in os.environ.items() if key not in FOREIGN and not key.startswith("TORCHELASTIC")}
    extra = {
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "LAB": str(folder),
        "TMPDIR": str(folder),
        "LAB_RUN": mark,
    }
    started = []
    try:
        for number, command in enumerate(commands):
            started.append(_start(command, folder / f"node-{number}.log", {**known, **extra, **environment}))
        end = time.monotonic() + LIMIT
        for process in started:
            process.wait(max(end - time.monotonic(), 1))
    finally:
        _end(started, mark)


def _start(command: Sequence[str], output: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with output.open("wb") as file:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=output.parent, env=environment
        )


def torchrun(fault: str, culprit: int, ranks: int, *options: str) -> list[str]:
    return [*TORCHRUN, "--standalone", f"--nproc-per-node={ranks}", *options, str(JOB), fault, str(culprit)]


def _end(started: list[subprocess.Popen[bytes]], mark: str) -> None:
    """Workers have sessions of their own; they are found by the mark in their environment."""
    for process in started:
        process.kill()
        process.wait()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"LAB_RUN={mark}".encode() in environment.read_bytes():
                os.kill(int(environment.parent.name), signal.SIGKILL)
        except OSError:
            continue  # It ended by itself, or is somebody else's.
