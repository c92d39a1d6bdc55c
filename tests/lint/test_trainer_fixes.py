"""The fixes for transformers' Trainer are run through the real one: its gradient before and after them."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from document import Case, read_document
from torch.optim.optimizer import register_optimizer_step_pre_hook

from firstfault.lint import Workspace, lint
from firstfault.text import apply_edits

transformers = pytest.importorskip("transformers")
CASES = read_document(Path(__file__).parent / "proofs" / "trainer-fixes.md")
RANK = Path(__file__).parent / "trainer_rank.py"
STEPS, LENGTH, WORDS = 4, 12, 60
VARIABLE, UNIFORM = (3, 9, 2, 6), (6, 6, 6, 6)
EQUAL, DIFFERENT = 1e-5, 1e-3  # the models compute their losses in single precision
TINY = {
    "vocab_size": WORDS, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": 32,
}  # fmt: skip
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
PLAIN = {
    "per_device_train_batch_size": 2, "max_steps": 1, "learning_rate": 0.0, "max_grad_norm": 0.0, "optim": "sgd",
    "use_cpu": True, "report_to": [], "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True,
    "remove_unused_columns": False, "dataloader_pin_memory": False,
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.heading)
def test_the_fix_gives_the_gradient_of_the_window(case: Case) -> None:
    code, number, claim = what(case)
    after = fixed(case.source, code, number)
    if code == "GA405":
        with pytest.raises(TypeError, match="num_items_in_batch"):
            error(case.source, UNIFORM)
    else:
        assert error(case.source, UNIFORM) == pytest.approx(STEPS - 1, rel=1e-3), "it is not times the steps before"
    assert error(after, UNIFORM) <= EQUAL
    if claim == "exact":
        assert error(after, VARIABLE) <= EQUAL
    else:
        assert error(after, VARIABLE) >= DIFFERENT, "it claims too little"


@pytest.mark.slow
def test_on_two_ranks_the_gradient_is_that_of_all_rows() -> None:
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(RANK)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1"})
    errors = [float(line.split()[0]) for line in done.stdout.splitlines() if re.match(r"\d\.\d+e", line)]
    assert len(errors) == sum(what(case)[2] == "exact" for case in CASES), done.stderr[-2000:]
    assert max(errors) <= EQUAL, done.stdout


def what(case: Case) -> tuple[str, int, str]:
    """The rule, the number of its fix, and what the fix claims."""
    code, number, claim = re.search(r"# rule: (\w+) (\d), claims: (\w+)", case.source).groups()
    return code, int(number), claim


def fixed(source: str, code: str, number: int) -> str:
    requirements = {"/project/requirements.txt": f"transformers=={transformers.__version__}\n"}
    found = lint(source, "/project/train.py", Workspace("/project", requirements))
    (finding,) = [each for each in found if each.code == code]
    return apply_edits(source, finding.fixes[number - 1].edits)


def error(source: str, counts: tuple[int, ...]) -> float:
    """The relative error of the gradient that the optimizer gets, against that of the stated objective."""
    torch.manual_seed(0)
    rows = [_row(count) for count in counts for _ in range(2)]
    caught: list[torch.Tensor] = []
    with tempfile.TemporaryDirectory() as out:
        names = {"TINY": TINY | (QUIET if "Bert" in source else {}), "PLAIN": PLAIN, "OUT": out, "ROWS": rows}
        names |= {"stack": lambda rows: {key: torch.stack([each[key] for each in rows]) for key in rows[0]}}
        hook = register_optimizer_step_pre_hook(lambda *_: caught.append(_gradient(names["model"])))
        try:
            exec(compile(source, "train.py", "exec"), names)
        finally:
            hook.remove()
    (got,) = caught
    wanted = _reference(names["model"], rows, names.get("SHIFT", True))
    return float((got - wanted).norm() / wanted.norm())


def _row(counted: int) -> dict[str, torch.Tensor]:
    words = torch.randint(1, WORDS, (LENGTH,))
    labels = words.clone()
    labels[0] = -100
    labels[1 + counted :] = -100
    return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": labels}


def _gradient(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat(
        [(each.grad if each.grad is not None else torch.zeros_like(each)).flatten() for each in model.parameters()]
    )


def _reference(model: torch.nn.Module, rows: list[dict[str, torch.Tensor]], shift: bool) -> torch.Tensor:
    """The sum of the losses of all counted tokens, divided once by their number; it knows nothing of the Trainer."""
    model.zero_grad()
    words, labels = (torch.stack([each[key] for each in rows]) for key in ("input_ids", "labels"))
    scores = model(input_ids=words, attention_mask=torch.ones_like(words)).logits
    if shift:
        scores, labels = scores[:, :-1], labels[:, 1:]
    total = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="sum")
    (total / (labels != -100).sum()).backward()
    return _gradient(model)
