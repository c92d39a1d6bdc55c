"""Fixes of clips and scalers are run: the gradient of each step, against that of the whole window, clipped once."""

from pathlib import Path

import pytest
import torch
from document import Case, read_document
from mended import mended
from proof import DIFFERENT, EQUAL, UNIFORM, errors, run

from firstfault.lint import Workspace, lint

PROOFS = Path(__file__).parent / "proofs"
CODES = {"clip-per-micro-batch": "GA209", "clip-before-unscale": "GA210", "scaler-per-micro-batch": "GA211"}
CASES = [
    pytest.param(code, case, id=f"{code}-{case.heading}")
    for name, code in CODES.items()
    for case in read_document(PROOFS / f"{name}.md")
]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize(("code", "case"), CASES)
def test_the_fix_gives_the_optimizer_the_gradient_of_the_window(code: str, case: Case) -> None:
    assert _fails(case.source), "the script is right before the fix"
    found = errors(*run(mended(code, case.source), UNIFORM, {}))
    assert len(found) == 2 and max(found) <= EQUAL, found


@pytest.mark.parametrize(("code", "case"), CASES)
def test_a_second_look_finds_nothing_to_mend(code: str, case: Case) -> None:
    found = lint(mended(code, case.source), "/project/train.py", Workspace("/project", {}))
    assert not [each for each in found or [] if each.code in CODES.values()]


def _fails(source: str) -> bool:
    """It raises, or a step gets another gradient."""
    try:
        return max(errors(*run(source, UNIFORM, {}))) >= DIFFERENT
    except (RuntimeError, AssertionError):
        return True


def test_nothing_is_offered_where_the_scaler_may_be_missing() -> None:
    document = read_document(Path(__file__).parent / "clip-before-unscale.md")
    (case,) = [each for each in document if each.heading.startswith("The scaler may be missing")]
    found = lint(case.source, "/project/train.py", Workspace("/project", {})) or []
    assert [each.fixes for each in found if each.code == "GA210"] == [()]
