"""Starts a proof's scripts on two ranks and collects what each of them finds."""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def on_two_ranks(jobs: list[tuple[str, list[list[int]]]], folder: Path) -> list[list[list[float]]]:
    """For each rank and each job: the errors of its windows."""
    (folder / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    command = [sys.executable, str(HERE / "proof_rank.py"), str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ranks = [
        subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        for rank in range(2)
    ]
    try:
        return [json.loads(rank.communicate(timeout=120)[0]) for rank in ranks]
    except (subprocess.TimeoutExpired, ValueError):
        for rank in ranks:  # where one has failed the other waits for it
            rank.kill()
        raise AssertionError([rank.communicate()[1].decode() for rank in ranks]) from None
