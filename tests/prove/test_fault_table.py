"""The table of faults and verdicts: each fault is proven under its own name, and no right script is accused.

A script's name begins with the code of its fault. Every script runs as it is, with the probes of `firstfault measure`,
in a fork of one process that has imported torch.
"""

from pathlib import Path

import pytest
from measuring import Warm

from firstfault.prove.measured import Measured
from firstfault.prove.verdict import Verdict, verdict_for, verdicts

HERE = Path(__file__).parent
FAULTY, RIGHT = (sorted((HERE / folder).glob("*.py")) for folder in ("faulty", "right"))
WINDOWS = {
    "ga201": 4,
    "ga202": 4,
    "short_window_divided": 4,
    "two_optimizers": 4,
    "windows_across": 5,
}  # until the data begins anew
UNCLEAR = {"closure"}  # nothing can be said, and that is said
SAME_NUMBERS = {"GA205"}  # GA204 as the run sees it; which of the two it is, the script says


@pytest.mark.parametrize("script", FAULTY, ids=lambda path: path.stem)
def test_a_fault_is_proven_under_its_name(script: Path, process: Warm) -> None:
    code = script.stem[:5].upper()
    found = _verdicts(script, process)
    verdict = verdict_for(code, found)
    assert verdict.state == "proven", f"{verdict}\n" + _all(found)
    assert verdict.code == code or code in SAME_NUMBERS, f"named {verdict.code}"
    assert any(character.isdigit() for character in verdict.message), "a proof has its number"
    proven = [each for each in found if each.state == "proven" and not each.quiet]
    assert all(code in (each.code, *each.also) for each in proven), _all(found)


@pytest.mark.parametrize("script", RIGHT, ids=lambda path: path.stem)
def test_a_right_script_is_not_accused(script: Path, process: Warm) -> None:
    found = _verdicts(script, process)
    assert not [each for each in found if each.state == "proven"], _all(found)
    if script.stem not in UNCLEAR:
        assert [each for each in found if each.state == "refuted"], "something was measured"


def _verdicts(script: Path, process: Warm) -> list[Verdict]:
    return verdicts(_measure(script, process))


def _measure(script: Path, process: Warm) -> Measured:
    windows = next((number for name, number in WINDOWS.items() if script.stem.startswith(name)), 2)
    ranks = 2 if script.stem.startswith(("ranks", "ga30", "ga101_on_ranks")) else 1
    return process.measure(script, windows, ranks)


def _all(found: list[Verdict]) -> str:
    return "\n".join(f"{each.code} {each.state}: {each.message}" for each in found)
