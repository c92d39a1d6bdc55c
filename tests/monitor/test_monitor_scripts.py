"""The faulty and the right scripts that ``firstfault measure`` is tested with, under the monitor."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCRIPTS = HERE.parent / "prove"
FAULTY = {
    "bn502_tiny_batch": {"BN502"},
    "ga101_mean_of_means": {"GA101"},
    "ga102_undivided": {"GA102"},
    "ga103_divided_twice": {"GA103"},
    "ga104_sum_under_accelerate": {"GA104"},
    "ga105_weighted_mean": {"GA105"},
    "ga106_masked_mean": {"GA106"},
    "ga109_all_masked": {"GA109"},
    "ga201_leftover_dropped": {"GA201"},
    "ga201_leftover_leaks": {"GA201"},
    "ga202_short_window": {"GA202"},
}
UNKNOWN = ("not measured: ", "the monitor is off: the optimizer runs its closure several times")


def by_one_process(paths: list[Path]) -> dict[str, list[str]]:
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS), "ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "scripts.py"), *map(str, paths)]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert answer.returncode == 0, answer.stderr
    found: dict[str, list[str]] = json.loads(answer.stdout)
    return found


@pytest.fixture(scope="module")
def warnings() -> dict[str, list[str]]:
    right = [path for path in sorted((SCRIPTS / "right").glob("*.py")) if not path.stem.startswith("ranks")]
    return by_one_process([*right, *(SCRIPTS / "faulty" / f"{name}.py" for name in FAULTY)])


@pytest.mark.parametrize("script", FAULTY)
def test_a_fault_is_told_under_its_code(script: str, warnings: dict[str, list[str]]) -> None:
    assert {each.partition(":")[0] for each in warnings[script]} == FAULTY[script]


def test_no_right_script_is_accused(warnings: dict[str, list[str]]) -> None:
    right = {script: said for script, said in warnings.items() if script not in FAULTY}
    assert len(right) > 30
    assert not {script: said for script, said in right.items() if any(not each.startswith(UNKNOWN) for each in said)}
