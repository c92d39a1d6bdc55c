"""What trainers do to the weight of a target: real ones, tiny models with random weights, nothing is downloaded."""

import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from measuring import Warm, warm

from firstfault.prove.gradients import gradient
from firstfault.prove.measured import Measured
from firstfault.prove.verdict import verdict_for, verdicts
from firstfault.prove.weights import terms

ROOT = Path(__file__).resolve().parents[2]
TRAINER = "transformers.trainer,transformers.models.llama.modeling_llama"
SCRIPTS = Path(__file__).parent / "frameworks"
RIGHT = ("hf_builtin", "hf_sum_loss", "hf_ranks", "lightning_equal", "lightning_manual", "fabric_sum")


@pytest.fixture(scope="module")
def trainers() -> Iterator[Warm]:
    with warm(f"{TRAINER},accelerate,lightning") as started:
        yield started


@pytest.fixture(scope="module")
def old_trainer() -> Iterator[Warm]:
    with warm(TRAINER, first=str(_installed("trainer-4-46"))) as started:
        yield started


@pytest.mark.parametrize("script", RIGHT)
def test_a_right_loop_is_not_accused(script: str, trainers: Warm) -> None:
    measured = _measure(script, trainers)
    found = verdicts(measured)
    assert not [each for each in found if each.state == "proven"]
    assert verdict_for("GA102", found).state == "refuted"
    for window in measured.complete:
        (term,) = terms(window)
        seen = gradient(window)
        assert term.ratio == pytest.approx(1, abs=1e-3) and term.mass == pytest.approx(1, abs=1e-3)
        assert seen is not None and (seen.cosine > 1 - 1e-5 or script == "lightning_equal")


@pytest.mark.parametrize("script", ["accelerate_mean", "lightning_mean", "fabric_mean"])
def test_a_mean_of_means(script: str, trainers: Warm) -> None:
    measured = _measure(script, trainers)
    verdict = verdict_for("GA101", verdicts(measured))
    assert verdict.state == "proven"
    assert verdict_for("GA102", verdicts(measured)).state == "refuted"
    (term,) = terms(measured.complete[0])
    assert term.ratio == pytest.approx(21 / 2) and term.mass == pytest.approx(1)
    seen = gradient(measured.complete[0])
    assert seen is not None and seen.error > 0.5 and seen.cosine < 0.9


@pytest.mark.parametrize(
    ("script", "code"), [("hf_mean_loss", "GA401"), ("hf_mean_loss_func", "GA402"), ("hf_head", "GA403")]
)
def test_a_mean_that_the_trainer_takes_for_divided(script: str, code: str, trainers: Warm) -> None:
    """The mass is the number of micro-batches."""
    measured = _measure(script, trainers)
    assert verdict_for(code, verdicts(measured)).state == "proven"
    (term,) = terms(measured.complete[0])
    assert term.mass == pytest.approx(4)
    if script == "hf_mean_loss":
        seen = gradient(measured.complete[0])
        assert seen is not None and seen.kept_scale < 1, "the Trainer clips, and hides a part of the fault"


def test_a_sharded_model(trainers: Warm) -> None:
    measured = trainers.measure(SCRIPTS / "fsdp_mean.py", ranks=2)
    assert verdict_for("GA301", verdicts(measured)).state == "proven"
    assert verdict_for("GA102", verdicts(measured)).state == "not measured"
    assert gradient(measured.complete[0]) is None
    assert [probe for probe, _ in measured.notes] == ["gradient"]


def test_both_faults_of_a_trainer_are_told_apart(trainers: Warm) -> None:
    found = verdicts(_measure("hf_mean_loss_of_lengths", trainers))
    assert {each.code for each in found if each.state == "proven"} == {"GA101", "GA102"}


def test_a_division_beside_that_of_lightning(trainers: Warm) -> None:
    measured = _measure("lightning_divided_twice", trainers)
    assert verdict_for("GA103", verdicts(measured)).state == "proven"
    assert terms(measured.complete[0])[0].mass == pytest.approx(1 / 4)


def test_the_trainer_of_transformers_4_46(old_trainer: Warm) -> None:
    assert old_trainer.versions["transformers"] == "4.46.3"
    for script, mass in (("hf_builtin", 1), ("hf_sum_loss", 1), ("hf_mean_loss", 4)):
        measured = _measure(script, old_trainer)
        (term,) = terms(measured.complete[0])
        assert (term.ratio, term.mass) == (pytest.approx(1, abs=1e-4), pytest.approx(mass, rel=1e-4)), script
        assert verdict_for("GA102", verdicts(measured)).state == ("refuted" if mass == 1 else "proven")


def _measure(script: str, process: Warm) -> Measured:
    measured = process.measure(SCRIPTS / f"{script}.py", ranks=2 if script == "hf_ranks" else 1)
    assert len(measured.complete) == 2
    assert not measured.notes
    return measured


def _installed(group: str) -> Path:
    """The packages of a dependency group in a folder of their own, put there once."""
    pins = re.search(rf"^{group} = \[.*?^\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M | re.S)
    assert pins is not None
    folder = ROOT / "build" / f"{group}-{hashlib.sha256(pins[0].encode()).hexdigest()[:12]}"
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=ROOT / "build") as fresh:
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
            subprocess.run([*command, "--target", f"{fresh}/new", "--group", group], check=True, cwd=ROOT)
            Path(fresh, "new").rename(folder)
    return folder
