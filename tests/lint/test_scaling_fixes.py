"""The fixes of rules about scale are run: the gradients of every window before and after, against the reference.

Each document in ``proofs/`` that is named here holds complete scripts. Before the fix a full window is off by the
factor that its section states (a comment ``# factor: 3``), after it every window equals the reference.
"""

import re
from pathlib import Path

import pytest
import torch
from document import Case, read_document
from proof import EQUAL, UNIFORM, VARIABLE, errors, run

from firstfault.lint import Workspace, lint
from firstfault.text import apply_edits

HERE = Path(__file__).parent
CODES = {"undivided-loss": "GA102", "double-division": "GA103", "unscaled-sum": "GA104", "short-window": "GA202"}
LOGS = read_document(HERE / "proofs" / "divided-loss-log.md")
STAND_INS = ("accelerate", "transformers", "lightning", "deepspeed")


def cases() -> list[object]:
    found = []
    for name, code in CODES.items():
        path = HERE / "proofs" / f"{name}.md"
        for case in read_document(path) if path.exists() else []:
            found.append(pytest.param(code, case, id=f"{code}-{case.heading}"))
    return found


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize(("code", "case"), cases())
def test_the_fix_makes_every_window_equal_to_the_reference(code: str, case: Case) -> None:
    modules = {name.removesuffix(".py"): text for name, text in case.files.items()}
    factor, every = _factor(case), "# every length" in case.source
    before, after = case.source, _fixed(code, case)
    wrong = errors(*run(before, UNIFORM, modules))
    # A window whose gradient is f times the reference is off by |f - 1|.
    assert max(wrong) == pytest.approx(abs(factor - 1), rel=1e-9), wrong
    for lengths in (VARIABLE, UNIFORM) if every else (UNIFORM,):
        found = errors(*run(after, lengths, modules))
        assert max(found) <= EQUAL, found


@pytest.mark.parametrize(("code", "case"), cases())
def test_the_fix_leaves_the_number_of_steps_and_the_first_log(code: str, case: Case) -> None:
    modules = {name.removesuffix(".py"): text for name, text in case.files.items()}
    steps, names = run(case.source, UNIFORM, modules)
    steps_after, names_after = run(_fixed(code, case), UNIFORM, modules)
    assert len(steps) == len(steps_after) >= 2
    if "log" in names:  # later entries follow another path, because the steps before them were wrong
        assert names["log"][0] == pytest.approx(names_after["log"][0], rel=1e-12)
        assert len(names["log"]) == len(names_after["log"])


@pytest.mark.parametrize("case", LOGS, ids=lambda case: case.heading)
def test_the_fix_of_a_log_shows_the_loss_and_leaves_training_alone(case: Case) -> None:
    before, names = run(case.source, VARIABLE, {})
    after, names_after = run(_fixed("GA213", case), VARIABLE, {})
    assert names["log"] != pytest.approx(names["wanted"], rel=1e-3)
    assert names_after["log"] == pytest.approx(names_after["wanted"], rel=1e-12)
    assert len(before) == len(after) >= 2
    assert all(torch.equal(one.gradient, other.gradient) for one, other in zip(before, after, strict=True))


def _factor(case: Case) -> float:
    stated = re.search(r"# factor: ([\d/]+)", case.source)
    assert stated, "the script does not state its factor"
    above, _, below = stated[1].partition("/")
    return float(above) / float(below or 1)


def _fixed(code: str, case: Case) -> str:
    siblings = {f"/project/{name}": text for name, text in case.files.items() if not name.startswith(STAND_INS)}
    found = lint(case.source, "/project/train.py", Workspace("/project", siblings))
    fixes = [fix for finding in found or [] if finding.code == code for fix in finding.fixes]
    assert fixes, "no fix is offered"
    return apply_edits(case.source, fixes[0].edits)
