"""The simple answers that Firstfault is measured beside: each is what it says it is, and each is graded alike."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "tests" / "cases" / "value-rank2.log").read_text(encoding="utf-8")


def test_baselines_stand_beside_ours(tmp_path: Path) -> None:
    for name, rank, text in (("a", 2, TEXT), ("b", 1, TEXT)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.txt").write_text(text, encoding="utf-8")
        label = {"accept": ["user-exception"], "initiating_rank": rank, "multi_rank": True}
        (tmp_path / name / "expected.json").write_text(json.dumps(label))
    command = [sys.executable, str(ROOT / "scripts" / "baselines.py"), str(tmp_path)]
    shown = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
    figures = {line[:34].strip(): [int(each) for each in line[34:].split()] for line in shown[2:]}
    assert shown[0].endswith("2 cases")
    assert figures["class right"][2] == 2
    assert [figures["rank right"][at] for at in (0, 2)] == [1, 1]
    assert [figures["another rank"][at] for at in (0, 2)] == [1, 1]
