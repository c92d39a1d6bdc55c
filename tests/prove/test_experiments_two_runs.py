"""Two measured runs side by side: what they prove, and what is said not to be equal."""

import json
import shlex
import sys

import pytest

from firstfault.cli import main
from firstfault.prove.experiments.two_runs import Proven, Side, compare, to_text

A = Side("A", "a", "Stopped after 1 window, as planned.", 1, 99, 1.0, 1.0, 1.0, 3e-8, False, ())
B = A._replace(name="B", micro_batches=4, count_ratio=1.8, error=7e-8)
FAULT = Proven("GA101", "mean-of-means", "One target weighs 1.8 times as much.")


def test_a_fault_of_either_run_is_named_with_its_run():
    assert compare(A, B).verdict == "no-fault"
    assert "GA101 in B" in to_text(compare(A, B._replace(proven=(FAULT,)))).splitlines()[0]
    assert "GA101 in A and B" in to_text(compare(A._replace(proven=(FAULT,)), B._replace(proven=(FAULT,))))


@pytest.mark.parametrize(
    ("b", "says"),
    [
        (B._replace(micro_batches=None, targets=None, ended="It never imported torch."), "It never imported torch."),
        (B._replace(micro_batches=1), "nothing is accumulated"),
        (B._replace(count_ratio=1.0), "was not put to the test"),
        (B._replace(targets=None, error=None), "could be measured"),
        (B._replace(off=True), "no known fault fits"),
    ],
)
def test_what_was_not_measured_leaves_the_question_open(b, says):
    found = compare(A, b)
    assert found.verdict == "inconclusive" and says in to_text(found)


def test_what_could_not_be_equalised_is_said():
    assert "both windows count 99 targets; that they hold the same samples is not known" in to_text(compare(A, B))
    assert "99 and 98 targets, so they hold different ones" in to_text(compare(A, B._replace(targets=98)))
    assert "each run draws its own masks" in to_text(compare(A, B))


SCRIPT = """
import sys
import torch
import torch.nn.functional as F

size, steps = int(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(0)
tokens, labels = torch.randint(0, 23, (32, 12)), torch.randint(0, 7, (32, 12))
for row in range(32):
    labels[row, row % 11 + 1 :] = -100
model = torch.nn.Sequential(torch.nn.Embedding(23, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 7))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(32 // size):
    at = slice(i * size, (i + 1) * size)
    loss = F.cross_entropy(model(tokens[at]).flatten(0, 1), labels[at].flatten()) / steps
    loss.backward()
    if (i + 1) % steps == 0:
        optimizer.step()
        optimizer.zero_grad()
"""


def test_the_users_own_commands_are_measured_one_after_the_other(tmp_path, capfd):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    a, b = (shlex.join([sys.executable, str(script), *sizes]) for sizes in (("8", "1"), ("2", "4")))
    assert main(["prove", "--a", a, "--b", b, "--format", "json"]) == 1
    answer = json.loads(capfd.readouterr().out)
    left, right = answer["runs"]
    assert [each["code"] for each in left["proven"] + right["proven"]] == ["GA101"] and right["proven"]
    assert (left["micro_batches"], right["micro_batches"], left["targets"]) == (1, 4, right["targets"])
    assert left["error"] < 1e-6 < right["error"]


@pytest.mark.parametrize("words", [["--a", "python x.py"], ["--a", "'", "--b", "x"], ["--a", " ", "--b", "x"]])
def test_two_commands_are_needed(words, capsys):
    assert main(["prove", *words]) == 2
    assert capsys.readouterr().err.startswith("firstfault: ")
