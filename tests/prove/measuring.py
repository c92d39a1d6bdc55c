"""Measures scripts of the tests in forks of one warm process."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from firstfault.prove.measured import Measured, measured
from firstfault.prove.messages import Plan, received, write_plan

HERE = Path(__file__).parent


class Warm:
    """A process that has imported torch, and forks for each script."""

    def __init__(self, talk: IO[str], answers: IO[str]) -> None:
        self._talk, self._answers = talk, answers
        self.versions: dict[str, str] = json.loads(answers.readline())  # of what was imported

    def measure(self, script: Path, windows: int = 2, ranks: int = 1) -> Measured:
        with tempfile.TemporaryDirectory() as folder:
            self._run(script, folder, windows, ranks)
            return measured("It ended.", received(folder))

    def ended_in(self, script: Path, probes: bool, ranks: int = 1) -> list[str]:
        """A digest of each rank's weights and random numbers at the script's own end."""
        with tempfile.TemporaryDirectory() as folder:
            self._run(script, folder, 10_000, ranks, probes)
            return [path.read_text() for path in sorted(Path(folder).glob("state*"))]

    def _run(self, script: Path, folder: str, windows: int, ranks: int, probes: bool = True) -> None:
        write_plan(Plan(folder, windows))
        job = {"script": str(script), "folder": folder, "ranks": ranks, "port": free_port() if ranks > 1 else 0}
        print(json.dumps({**job, "probes": probes}), file=self._talk, flush=True)
        statuses = json.loads(self._answers.readline())
        output = "".join(path.read_text() for path in sorted(Path(folder).glob("output*")))
        assert not any(statuses), f"{script.name} ended with {statuses}:\n{output}"


@contextlib.contextmanager
def warm(imports: str = "", first: str | None = None) -> Iterator[Warm]:
    """`imports` are done before the forks, `first` is a folder that comes before the installed packages."""
    path = os.pathsep.join(filter(None, [first, str(HERE), os.environ.get("PYTHONPATH")]))
    settings = {"FIRSTFAULT_WARM": imports, "ACCELERATE_USE_CPU": "1", "HF_HUB_OFFLINE": "1"}
    environment = {**os.environ, "PYTHONPATH": path, **settings}
    command = [sys.executable, str(HERE / "warm.py")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=HERE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        yield Warm(process.stdin, process.stdout)
        process.stdin.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
