"""Several ranks: what they add up to is known on rank 0, and no rank waits for another."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "ranks.py"


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    answer = subprocess.run(
        [sys.executable, str(SCRIPT), port], capture_output=True, text=True, timeout=120, env=environment
    )
    assert answer.returncode == 0, answer.stderr
    found: list[dict[str, Any]] = json.loads(answer.stdout.splitlines()[-1])
    return found


def test_the_mean_over_all_ranks_is_right(ranks: list[dict[str, Any]]) -> None:
    first, second = (each["all"] for each in ranks)
    assert [step for step, _ in first["logged"]] == [1, 2, 3, 4, 5]
    for _, values in first["logged"]:
        assert values["weight_ratio"] == pytest.approx(1) and values["mass"] == pytest.approx(1)
        assert values["targets"] == 200 and values["micro_batches_per_step"] == 2
        assert values["rank_imbalance"] == pytest.approx(160 / 100)
    assert second == {"logged": [], "warnings": []}
    (sentence,) = first["warnings"]
    assert sentence.startswith("GA301: Rank 1 had 640 targets in 4 measured steps, 1.6 times the mean of the ranks")


def test_a_mean_of_each_rank(ranks: list[dict[str, Any]]) -> None:
    first, second = (each["own"] for each in ranks)
    for _, values in first["logged"]:
        assert values["weight_ratio"] == pytest.approx(4) and values["mass"] == pytest.approx(1)
    assert any("One target weighs up to 4 times as much as another" in each for each in first["warnings"])
    assert not second["warnings"]
