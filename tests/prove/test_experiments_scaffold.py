"""A probe that is written for a script: what it holds, and that it runs as it stands where the script tells all."""

import ast
from pathlib import Path

import pytest
from experiment import codes, proved

from firstfault.cli import main
from firstfault.scaffold import scaffold

ROOT = Path(__file__).resolve().parents[2]


def test_the_probe_of_the_example_runs_as_it_stands_and_proves_both_of_its_faults(tmp_path):
    source = (ROOT / "examples" / "train.py").read_text(encoding="utf-8")
    probe = scaffold(source, "train.py")
    loop = source[source.index("        optimizer.zero_grad()") : source.index("        print(f")]
    loop = loop.replace("(loader)", "(micro_batches)")
    assert [line.strip() for line in loop.splitlines()] == lines_of(probe, "optimizer.zero_grad()", "\n\n\n#")
    assert codes(proved(tmp_path, probe)) == ["token-denominator", "batchnorm"]


def lines_of(text: str, first: str, end: str) -> list[str]:
    return [line.strip() for line in text[text.index(first) : text.index(end)].splitlines()]


SCRIPT = """
import argparse
import torch, os
from torch.utils.data import DataLoader
from tqdm import tqdm

from models import Net
from losses import token_loss

WEIGHT = 0.5
UNUSED = 1


def parse():
    return argparse.ArgumentParser().parse_args()


def smooth(loss):
    return loss * WEIGHT


def train(dataset):
    args = parse_options = argparse.ArgumentParser().parse_args()
    net = Net(args.width)
    net = net.to(args.device)
    opt = torch.optim.AdamW(net.parameters())
    plan = torch.optim.lr_scheduler.StepLR(opt, 10)
    loader = DataLoader(dataset, batch_size=args.rows, shuffle=True, num_workers=4)
    seen, total = 0, 0.0
    for i, batch in enumerate(tqdm(loader)):
        loss = smooth(token_loss(net(batch["x"].to(args.device)), batch["y"])) / args.accum
        loss.backward()
        total += loss.item()
        seen += 1
        if (i + 1) % args.accum == 0:
            opt.step()
            plan.step()
            opt.zero_grad()
"""


def test_what_the_script_tells_is_copied_and_the_rest_is_marked():
    probe = scaffold(SCRIPT, "/project/train.py")
    ast.parse(probe)
    assert "from models import Net\nfrom losses import token_loss" in probe
    assert "WEIGHT = 0.5" in probe and "def smooth(loss):" in probe
    assert "UNUSED" not in probe and "tqdm" in probe and "argparse" not in probe
    assert "    args = SimpleNamespace(width=...)  # FILL IN\n    return Net(args.width)" in probe
    assert "    dataset = ...  # FILL IN\n    return next(iter(DataLoader(dataset, batch_size=n)))" in probe
    body = probe[probe.index("def accumulate(net, micro_batches):") :]
    for line in (
        "opt = torch.optim.SGD(net.parameters(), lr=0.1)",
        "plan = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 0.9**step)",
        'args = SimpleNamespace(device="cpu")  # FILL IN',
        "total = 0.0",
        "seen = 0",
        "for i, batch in enumerate(tqdm(micro_batches)):",
        'loss = smooth(token_loss(net(batch["x"].to(args.device)), batch["y"])) / len(micro_batches)',
        "if (i + 1) % len(micro_batches) == 0:",
    ):
        assert f" {line}\n" in body, line


def test_values_over_several_lines_stay_together():
    net = "Net(args.width)\n    scale = (\n        2.0\n        if args.wide\n        else 1.0\n    )"
    source = SCRIPT.replace("Net(args.width)", net).replace("loss.backward()", "(loss * scale).backward()")
    probe = scaffold(source, "train.py")
    assert "scale = (2.0\n        if args.wide\n        else 1.0)" in probe
    ast.parse(probe)


@pytest.mark.parametrize("source", ["", "x = (1", "for x in y:\n    print(x)\n", "def f(loss):\n    loss.backward()\n"])
def test_a_script_without_a_loop_gets_the_bare_frame(source):
    probe = scaffold(source, "train.py")
    ast.parse(probe)
    assert "def build():" in probe and "FILL IN: return the model" in probe


def test_it_is_written_to_a_new_file_only(tmp_path, capsys):
    script, probe = ROOT / "examples" / "train.py", tmp_path / "probe.py"
    assert main(["prove", "--scaffold", str(script), "-o", str(probe)]) == 0
    assert probe.read_text(encoding="utf-8") == scaffold(script.read_text(encoding="utf-8"), str(script))
    probe.write_text("mine", encoding="utf-8")
    assert main(["prove", "--scaffold", str(script), "-o", str(probe)]) == 2
    assert probe.read_text(encoding="utf-8") == "mine" and "exists already" in capsys.readouterr().err
    assert main(["prove", "--scaffold", str(tmp_path / "none.py")]) == 2


def test_the_page_shows_a_probe_that_does_what_it_says(tmp_path):
    page = (ROOT / "docs" / "probe.md").read_text(encoding="utf-8")
    probe = page.split("```python\n")[1].split("```")[0]
    (code,) = codes(proved(tmp_path, probe))
    assert f"`Fault proven: {code}`" in page


PREPARED = """
import torch
import torch.nn.functional as F
from accelerate import Accelerator

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for inputs, labels in loader:
    with accelerator.accumulate(model):
        accelerator.backward(F.cross_entropy(model(inputs), labels))
        optimizer.step()
        optimizer.zero_grad()
"""


def test_what_accelerate_prepared_stays_prepared():
    lines = [line.strip() for line in scaffold(PREPARED, "train.py").splitlines()]
    made = lines.index("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)")
    assert (
        made
        < lines.index("optimizer = accelerator.prepare(optimizer)")
        < lines.index("for inputs, labels in micro_batches:")
    )


FETCHES = """
import torch
sys.path.append("..")
from helpers import *

device = "cuda"
if ranked:
    device = f"cuda:{rank}"
kind = "cuda" if "cuda" in device else "cpu"


def train(model, optimizer, args, log=None, k=4):
    lowest = args.lowest
    X, Y = fetch()
    for _ in range(args.steps):
        for step in range(k):
            total = 0
            total += weigh(model(X).to(kind), Y, args.power)
            (total / k).backward()
            if log:
                log(args.name, lowest, step, spent)
            X, Y = fetch()
            spent = 1
        optimizer.step()
        optimizer.zero_grad()
"""


def test_a_loop_that_gets_its_data_inside_says_where_to_fill_in():
    probe = scaffold(FETCHES, "train.py")
    head, body = probe.split("def accumulate(model, micro_batches):")
    assert (
        'sys.path.append("..")\nimport torch\nfrom helpers import *\n' in head
        and 'device = "cpu"\n\n\nkind = "cuda" if' in head
    )
    for line in ("X = ...  # FILL IN", "Y = ...  # FILL IN", "log = None", "for step in range(len(micro_batches)):"):
        assert f"    {line}\n" in body, line
    assert "    args = SimpleNamespace(power=..., name=..., lowest=...)  # FILL IN\n" in body, body
    assert "    spent = 1\n" in body and "total = ..." not in body and "weigh =" not in body
    assert "let it take micro_batches[0], [1] and so on" in body and "step = batch" not in body
