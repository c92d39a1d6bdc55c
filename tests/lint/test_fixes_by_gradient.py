"""Every fix of mean-of-means is run: torch's own gradients before and after it, on variable and on uniform data."""

from pathlib import Path

import pytest
import torch
from document import Case, read_document
from proof import DIFFERENT, EQUAL, UNIFORM, VARIABLE, errors, run
from ranks import on_two_ranks

from firstfault.lint import Workspace, lint
from firstfault.text import apply_edits

HERE = Path(__file__).parent
CASES = read_document(HERE / "proofs" / "mean-of-means.md")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.heading)
def test_the_fix_makes_every_window_equal_to_the_reference(case: Case) -> None:
    modules = {name.removesuffix(".py"): text for name, text in case.files.items()}
    before = case.source
    after = _fixed(case)

    full_windows = slice(0, len(VARIABLE) // 3)  # before the fix a short window is wrong on any data
    assert max(errors(*run(before, VARIABLE, modules))[full_windows]) >= DIFFERENT
    assert max(errors(*run(before, UNIFORM, modules))[full_windows]) <= EQUAL
    for lengths in (VARIABLE, UNIFORM):
        found = errors(*run(after, lengths, modules))
        assert max(found) <= EQUAL, found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.heading)
def test_the_fix_leaves_steps_and_log_as_they_were(case: Case) -> None:
    modules = {name.removesuffix(".py"): text for name, text in case.files.items()}
    steps, names = run(case.source, UNIFORM, modules)
    steps_after, names_after = run(_fixed(case), UNIFORM, modules)
    assert len(steps) == len(steps_after) >= 2
    assert all(bool(each.gradient.isfinite().all()) for each in steps_after)
    if "log" in names:
        # With equal counts the weights take the same path, so the log must be the same too.
        assert len(names["log"]) == len(names_after["log"]) > 0
        if not case.heading.startswith("A leftover"):  # its short window took another path before the fix
            assert names["log"] == pytest.approx(names_after["log"], rel=1e-12)


def test_the_count_is_taken_over_all_ranks(tmp_path: Path) -> None:
    (case,) = read_document(HERE / "proofs" / "mean-of-means-ranks.md")
    before, after = case.source, _fixed(case)
    for found in on_two_ranks([(before, VARIABLE), (before, UNIFORM), (after, VARIABLE)], tmp_path):
        faulty, control, fixed = found
        assert [len(each) for each in found] == [2, 2, 2]
        assert max(faulty) >= DIFFERENT and max(control) <= EQUAL and max(fixed) <= EQUAL, found


def _fixed(case: Case) -> str:
    siblings = {f"/project/{name}": text for name, text in case.files.items() if not name.startswith(STAND_INS)}
    found = lint(case.source, "/project/train.py", Workspace("/project", siblings))
    fixes = [fix for finding in found or [] if finding.code == "GA101" for fix in finding.fixes]
    assert fixes, "no fix is offered"
    return apply_edits(case.source, fixes[0].edits)


STAND_INS = ("accelerate", "transformers", "lightning")
