"""Failures that raise no error, on recorded trainings: half of them faulty, half healthy and noisy.

What the answer must be stands in ``tests/curves/expected.toml``; ``record_curves.py`` beside it records the logs anew.
"""

import sys
from pathlib import Path
from typing import Any

import pytest

from firstfault import logs
from firstfault.diagnose import diagnose
from firstfault.diagnose.curves import Curves
from firstfault.diagnose.report import Report
from firstfault.library import Signature, load
from firstfault.logs.source import from_paths, from_text
from reading import read

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CURVES = Path(__file__).parent.parent / "curves"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((CURVES / "expected.toml").read_text(encoding="utf-8"))
LIBRARY = load()
DECIDED_BY_CURVES = (
    "loss-flat-frozen", "loss-divergence", "loss-zero", "resume-spike", "no-zero-grad", "accumulation-loss-scaling",
)  # fmt: skip


def diagnosed(text: str) -> Report:
    return diagnose(logs.read([from_text(text.strip("\n") + "\n", "run.log")], LIBRARY.prefixes), LIBRARY)


def recorded(name: str) -> Report:
    return diagnose(logs.read(from_paths([str(CURVES / f"{name}.log")]), LIBRARY.prefixes), LIBRARY)


def test_every_recorded_curve_has_its_answer() -> None:
    assert {path.stem for path in CURVES.glob("*.log")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_built_in_fault_is_named_and_a_healthy_run_is_left_alone(name: str) -> None:
    report, expected = recorded(name), EXPECTED[name]
    first = report.initiating
    assert (report.verdict, first.signature if first else None) == (expected["verdict"], expected.get("signature"))
    for words in expected.get("cause", []):
        assert words in report.cause
    if "line" in expected:
        assert first is not None
        assert expected["line"] in [item.line for item in first.evidence]


@pytest.mark.parametrize("name", [name for name, each in EXPECTED.items() if "signature" in each])
def test_every_number_is_cited_word_for_word_and_what_is_not_known_is_named(name: str) -> None:
    report = recorded(name)
    lines = (CURVES / f"{name}.log").read_bytes().decode("utf-8").split("\n")
    assert report.initiating is not None
    assert report.initiating.evidence
    for item in report.initiating.evidence:
        assert item.text in lines[item.line - 1]
    assert report.missing or report.verdict == "established"


@pytest.mark.parametrize("signature", [LIBRARY.signatures[id_] for id_ in DECIDED_BY_CURVES], ids=lambda each: each.id)
def test_the_pages_own_samples(signature: Signature) -> None:
    for sample in signature.samples:
        first = diagnosed(sample.text).initiating
        assert first is not None and first.signature == signature.id, sample.text
    for near_miss in signature.near_misses:
        assert diagnosed(near_miss.text).verdict == "no-failure", near_miss.text


# ------------------------------------------------------------------------------------------ NaN and exceptions

FALLING = "".join(f"step {step} loss {2 - step / 50:.3f}\n" for step in range(20))
OUT_OF_MEMORY = """Traceback (most recent call last):
  File "/home/ann/lab/train.py", line 12, in main
    loss = model(batch)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""


def test_a_nan_that_was_left_again_is_no_failure() -> None:
    text = FALLING + "step 20 loss nan\nstep 21 loss 1.581\nstep 22 loss 1.560\nstep 23 loss 1.541\n"
    assert diagnosed(text).verdict == "no-failure"


def test_a_nan_to_the_end_is_one() -> None:
    report = diagnosed(FALLING + "step 20 loss nan\nstep 21 loss nan\n")
    assert report.initiating is not None and report.initiating.signature == "loss-nan"
    assert "at step 20" in report.cause and "1.62 (step 19)" in report.cause


def test_an_exception_that_has_nothing_to_do_with_the_nan_comes_first() -> None:
    report = diagnosed(FALLING + "step 20 loss nan\nstep 21 loss nan\n" + OUT_OF_MEMORY)
    assert report.initiating is not None and report.initiating.signature.startswith(("cuda-oom", "oom"))
    assert "loss-nan" in {each.signature for each in report.collateral}


@pytest.mark.parametrize(
    "message",
    [
        "ValueError: Input contains NaN.",
        "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
        "AssertionError: loss is not a number any more",
    ],
)
def test_an_exception_that_the_nan_brought_about_does_not(message: str) -> None:
    trace = OUT_OF_MEMORY.replace(OUT_OF_MEMORY.splitlines()[-1], message)
    report = diagnosed(FALLING + "step 20 loss nan\nstep 21 loss nan\n" + trace)
    assert report.initiating is not None and report.initiating.signature == "loss-nan"


def test_a_nan_of_an_evaluation_metric_alone_is_no_failure() -> None:
    text = "".join(f"epoch {at} loss {2 - at / 9:.3f} val_auc nan val_loss {1.9 - at / 10:.3f}\n" for at in range(9))
    assert diagnosed(text).verdict == "no-failure"


def test_a_bar_that_never_knew_the_loss_is_no_nan() -> None:
    """Lightning with manual optimization: the bar's own loss is NaN from the start, the logged one is sound."""
    text = "".join(
        f"Epoch 0: {at:3}%|##| {at}/99 [00:{at:02}<00:20, 9.1it/s, loss=nan, v_num=3, train_loss={2 - at / 90:.3f}]\n"
        for at in range(1, 40)
    )
    assert diagnosed(text).verdict == "no-failure"
    assert diagnosed(text.replace("train_loss=1", "train_loss=nan, x=1")).initiating is not None


def test_the_rank_whose_loss_broke_first_is_named() -> None:
    text = "".join(
        f"[rank{rank}]: step {step} loss {'nan' if step >= 5 + (rank != 2) else 2 - step / 10:}\n"
        for step in range(9)
        for rank in range(3)
    )
    report = diagnosed(text)
    assert report.initiating is not None
    assert (report.initiating.signature, report.initiating.rank) == ("loss-nan", 2)


# ------------------------------------------------------------------------------------------ near misses


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "".join(f"step {at} loss {1.2 + 0.05 * (-1) ** at:.3f} grad_norm nan\n" for at in (0,))
            + "".join(f"step {at} loss {1.9 - at / 40:.3f} grad_norm 1.3\n" for at in range(1, 20)),
            id="the first gradient norm of mixed precision",
        ),
        pytest.param(
            "".join(f"step {at} loss {2.3 - at / 100:.3f} loss_scale 1.0 grad_norm 0.9\n" for at in range(20)),
            id="a scale that is 1 by design",
        ),
        pytest.param(
            "".join(f"step {at} loss {loss}\n" for at, loss in enumerate([3, 2.5, 2.2, 2, 1.8, 1.7, 1.6, 1.55, 1.5,
                                                                         1.52, 1.55, 1.58, 1.6, 1.61, 1.63, 1.62])),
            id="a slight rise after the fall",
        ),
        pytest.param(
            "".join(f"step {5000 + at} loss {0.693 + 0.0004 * (-1) ** at:.4f}\n" for at in range(40)),
            id="a piece cut from the end",
        ),
        pytest.param(
            "".join(f"step {at} loss 2.30{at % 7} lr {at * 1e-7:.1e}\n" for at in range(1, 40)),
            id="a rate that still warms up",
        ),
        pytest.param(
            "".join(f"step {at} loss {0.4 / (1 + at):.3f}\n" for at in range(0, 2000, 40)), id="rounded to zero at last"
        ),
        pytest.param(
            "Loading checkpoint shards: 100%|###| 2/2\n" + "".join(f"step {at} loss {9 - at}\n" for at in range(8)),
            id="a model that is loaded at the start",
        ),
        pytest.param(
            "".join(f"[losses/policy_loss: {0.1 * (-1) ** at} | losses/value_loss: {8 + 5 * (at > 9)}] step {at}\n"
                    for at in range(20)),
            id="losses of reinforcement learning",
        ),
        pytest.param(
            "".join(f"step {at} loss {2 + (6 if 30 < at < 34 else 0) - at / 60:.3f}\n" for at in range(60)),
            id="a spike of some steps",
        ),
    ],
)  # fmt: skip
def test_what_healthy_runs_do_is_not_reported(text: str) -> None:
    assert diagnosed(text).verdict == "no-failure"


# ------------------------------------------------------------------------------------------ across files, in large logs


def test_a_jump_is_seen_across_the_launchers_restart() -> None:
    before = "".join(f"step {at} loss {2.0 + 0.01 * (at % 3):.3f}\n" for at in range(0, 100, 10))
    after = "".join(f"step {at} loss {3.9 - at / 1000:.3f}\n" for at in range(100, 180, 10))
    mark = "INFO: 3/3 attempts left; will restart worker group\nresuming from checkpoint runs/step_100\n"
    report = diagnosed(before + mark + after)
    assert report.initiating is not None and report.initiating.signature == "resume-spike"


def test_a_large_log_keeps_the_shape_of_its_curve(tmp_path: Path) -> None:
    """Its middle is dropped by the first stage; a sample of it shows where the loss rose."""
    path = tmp_path / "run.log"
    with path.open("w", encoding="utf-8") as file:
        for step in range(120_000):
            loss = 2.0 - step / 80_000 if step < 60_000 else 14.0 + step % 7 / 10
            file.write(f"step {step} loss {loss:.4f} tokens/s {18000 + step % 977} lr 3.0e-04\n")
    log = logs.read(from_paths([str(path)]), LIBRARY.prefixes)
    assert len(log.lines) < 2000
    report = diagnose(log, LIBRARY)
    assert report.initiating is not None and report.initiating.signature == "loss-divergence"
    source = path.read_text(encoding="utf-8").split("\n")
    assert all(item.text == source[item.line - 1] for item in report.initiating.evidence)
    numbers = [item.line - 1 for item in report.initiating.evidence]
    assert any(60_000 <= number < 66_000 for number in numbers)


def test_a_curve_is_that_of_one_loss_of_one_writer() -> None:
    curves = Curves(read("[rank0]: step 1 loss_cls 0.2 loss 1.5\n[rank1]: step 1 loss_cls 0.3 loss 1.6\n")).all
    assert [[point.value for point in curve.loss] for curve in curves] == [[1.5], [1.6]]
