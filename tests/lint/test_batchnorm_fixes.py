"""Proves BN501 and its fixes: the scripts run in float64, before and after, against the gradient of the full batch.

The reference is computed apart from the script: the loss of the whole batch through a copy of the model, as it stood
when the optimizer was about to step.
"""

import copy
import math

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from firstfault.lint import Workspace, lint
from firstfault.lint.norms_fixes import groups_expression, groups_for
from firstfault.text import apply_edits

EQUAL, DIFFERENT = 1e-12, 1e-8  # of the gradient's norm; between them nothing is said
BATCH, MICRO_BATCHES = 32, 4
GROUP_NORM, FREEZE, MOMENTUM = "Replace", "Keep", "Correct"

IMAGES = """
import torch
from torch import nn

ACCUM = 4


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 48, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(48, eps=1e-3)
        self.conv2 = nn.Conv2d(48, width, 3, bias=False)
        self.bn2 = nn.BatchNorm2d(num_features=width, momentum=0.2)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        return self.head(self.bn2(self.conv2(x)).relu().mean((2, 3)))


def criterion(output, target):
    return nn.functional.cross_entropy(output, target)


def build():
    return Net()


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.train()
    for step, (x, y) in enumerate(loader):
        loss = criterion(model(x), y) / ACCUM
        loss.backward()
        if (step + 1) % ACCUM == 0:
            optimizer.step()
            optimizer.zero_grad()
"""

SIGNALS = """
import torch
from torch.nn import BatchNorm1d, Conv1d, Flatten, Linear, ReLU, Sequential

ACCUM = 4


def criterion(output, target):
    return ((output - target[:, None]) ** 2).mean()


def block(a, b):
    return [Conv1d(a, b, 3), BatchNorm1d(b), ReLU()]


class Runner:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def epoch(self, loader, fit=True):
        self.model.train(fit)
        for step, (x, y) in enumerate(loader):
            (criterion(self.model(x), y) / ACCUM).backward()
            if (step + 1) % ACCUM == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()


def build():
    return Sequential(*block(3, 12), *block(12, 64), Flatten(), Linear(64 * 4, 16), BatchNorm1d(16), Linear(16, 1))


def train(model, loader):
    Runner(model).epoch(loader)
"""

ROWS = """
import torch
import torch.nn as nn

ACCUM = 4


def criterion(output, target):
    return nn.functional.cross_entropy(output, target)


def build():
    return nn.Sequential(nn.Linear(6, 40), nn.BatchNorm1d(40, affine=False), nn.Tanh(), nn.Linear(40, 5))


def train(model, loader):
    decayed, plain = [], []
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm1d):
            plain.extend([each for each in (layer.weight, layer.bias) if each is not None])
        elif isinstance(layer, nn.Linear):
            decayed.extend([layer.weight, layer.bias])
    optimizer = torch.optim.SGD([{"params": decayed, "weight_decay": 0.01}, {"params": plain}], lr=0.1)
    optimizer.zero_grad()
    model.train()  # every epoch
    for step, (x, y) in enumerate(loader):
        loss = criterion(model(x), y)
        loss = loss / ACCUM
        loss.backward()
        if (step + 1) % ACCUM == 0:
            optimizer.step()
            optimizer.zero_grad()


model = build()
"""

SCRIPTS = {
    "images": (IMAGES, (3, 8, 8), "class"),
    "signals": (SIGNALS, (3, 8), "value"),
    "rows": (ROWS, (6,), "class"),
}


@pytest.fixture(params=SCRIPTS)
def case(request):
    source, shape, target = SCRIPTS[request.param]
    return source, *data(shape, target)


def data(shape, target):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(BATCH, *shape, generator=generator, dtype=torch.float64) * 2 + 1
    y = torch.randint(5, (BATCH,), generator=generator)
    return x, y if target == "class" else y.double()


@pytest.fixture(autouse=True)
def in_float64():
    torch.set_default_dtype(torch.float64)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the models are tiny: more threads only wait for each other
    yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(torch.float32)


def test_batch_norm_makes_the_gradient_another_one(case):
    source, x, y = case
    assert distance(source, x, y) >= DIFFERENT


def test_the_difference_comes_from_batch_norm_alone(case):
    source, x, y = case
    assert distance(source, x, y, hold=True) <= EQUAL


@pytest.mark.parametrize("title", [GROUP_NORM, FREEZE])
def test_a_whole_fix_makes_the_gradients_equal(case, title):
    source, x, y = case
    fix = offered(source, title)
    assert fix.applicability == "unsafe"
    assert distance(apply_edits(source, fix.edits), x, y) <= EQUAL


def test_the_momentum_correction_leaves_the_gradients_different(case):
    source, x, y = case
    fix = offered(source, MOMENTUM)
    assert fix.applicability == "partial"
    assert distance(apply_edits(source, fix.edits), x, y) >= DIFFERENT


def test_the_fixed_scripts_have_no_batch_norm_left_or_hold_it_still(case):
    source, x, y = case
    replaced = model_after(apply_edits(source, offered(source, GROUP_NORM).edits), x, y)
    held = model_after(apply_edits(source, offered(source, FREEZE).edits), x, y)
    assert not batch_norms(replaced)
    assert batch_norms(held) and not any(layer.training for layer in batch_norms(held))
    assert held.training


def test_every_weight_stays_in_its_group_after_group_norm():
    groups = []
    for source in (ROWS, apply_edits(ROWS, offered(ROWS, GROUP_NORM).edits)):
        source = source.replace(", affine=False", "")
        seen = observed(source, *data((6,), "class"))
        groups.append([sum(each.numel() for each in group["params"]) for group in seen.optimizer.param_groups])
    assert groups[0] == groups[1]
    assert groups[0][1] == 2 * 40


# --------------------------------------------------------------------------------------- running statistics

STATISTICS = """
import torch
from torch import nn

ACCUM = 8


def build():
    return nn.Sequential(nn.BatchNorm1d(4000), nn.Linear(4000, 1, bias=False))


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    model.train()
    for step, x in enumerate(loader):
        (model(x).mean() / ACCUM).backward()
        if (step + 1) % ACCUM == 0:
            optimizer.step()
            optimizer.zero_grad()
"""


def test_the_momentum_correction_restores_the_noise_of_the_running_mean():
    """Each of 4000 channels is one repetition; after 60 windows nothing of the start is left."""
    full_batch = STATISTICS.replace("ACCUM = 8", "ACCUM = 1")
    corrected = apply_edits(STATISTICS, offered(STATISTICS, MOMENTUM).edits)
    wanted = noise_of_running_mean(full_batch, windows=60, size=32, micro_batches=1)
    assert noise_of_running_mean(corrected, windows=60, size=32, micro_batches=8) == pytest.approx(wanted, rel=0.05)
    assert noise_of_running_mean(STATISTICS, windows=60, size=32, micro_batches=8) > 2 * wanted


def noise_of_running_mean(source, windows, size, micro_batches):
    names = run(source)
    model = names["build"]()
    generator = torch.Generator().manual_seed(11)
    batches = (torch.randn(size, 4000, generator=generator) for _ in range(windows))
    names["train"](model, (part for batch in batches for part in batch.chunk(micro_batches)))
    return model[0].running_mean.std().item()


# --------------------------------------------------------------------------------------- the number of groups


@pytest.mark.parametrize("least", [2, 8])
def test_the_groups_divide_the_channels_and_leave_something_to_average(least):
    for channels in range(1, 131):
        divisors = [each for each in range(1, 33) if channels % each == 0 and channels // each >= least]
        assert groups_for(channels, least) == max(divisors, default=1)
        at_run_time = eval(groups_expression("channels", least), {"math": math, "channels": channels})
        for groups in (groups_for(channels, least), at_run_time):
            assert 1 <= groups <= 32
            layer = nn.GroupNorm(groups, channels)  # raises where the groups do not divide the channels
            if channels > 1:
                assert groups < channels
                assert layer(torch.randn(2, channels, 1, 1)).abs().sum() > 0


def test_known_channels_at_run_time_take_the_powers_of_two():
    found = [eval(groups_expression(str(channels)), {"math": math}) for channels in (16, 32, 48, 64, 100, 127, 512)]
    assert found == [8, 16, 8, 32, 2, 1, 32]


# --------------------------------------------------------------------------------------------- no fix offered


@pytest.mark.parametrize(
    ("old", "new", "gone"),
    [
        ("nn.BatchNorm2d(48, eps=1e-3)", "nn.BatchNorm2d(48, *options)", {GROUP_NORM, MOMENTUM}),
        ("nn.BatchNorm2d(48, eps=1e-3)", "nn.LazyBatchNorm2d()", {GROUP_NORM, MOMENTUM}),
        ("nn.BatchNorm2d(48, eps=1e-3)", "nn.BatchNorm2d(next(widths))", {GROUP_NORM}),
        ("nn.BatchNorm2d(48, eps=1e-3)", "nn.BatchNorm2d(48, momentum=None)", {MOMENTUM}),
        ("return Net()", "return Net().bn1.running_mean", {GROUP_NORM}),
        ("ACCUM = 4", "ACCUM = int(input())", set()),
        ("def __init__(self, width=24)", "def __init__(self, width=24, ACCUM=1)", {MOMENTUM}),
        ("    model.train()\n", "    model.train(); print(1)\n", {FREEZE}),
        ("    model.train()\n", "    model.train(False)\n", {FREEZE}),
    ],
)
def test_a_fix_that_cannot_be_right_is_not_offered(old, new, gone):
    assert old in IMAGES
    titles = {fix.title.split()[0] for fix in finding(IMAGES.replace(old, new)).fixes}
    assert titles == {GROUP_NORM, FREEZE, MOMENTUM} - gone


def test_no_momentum_where_the_layer_is_built_before_the_constant_is_set():
    without = IMAGES.replace("ACCUM = 4\n", "")
    behind = {fix.title.split()[0] for fix in finding(without + "\n\nACCUM = 4\n").fixes}
    too_late = {fix.title.split()[0] for fix in finding(without + "\n\nfirst = build()\nACCUM = 4\n").fixes}
    assert behind == {GROUP_NORM, FREEZE, MOMENTUM}
    assert too_late == {GROUP_NORM, FREEZE}


def test_no_group_norm_where_the_import_of_math_has_no_place():
    inside = SIGNALS.replace(
        "def block(a, b):\n", "def block(a, b):\n    from torch.nn import BatchNorm1d, Conv1d, GroupNorm, ReLU\n\n"
    )
    assert GROUP_NORM in {fix.title.split()[0] for fix in finding(inside).fixes}
    without = inside.replace(
        "import torch\nfrom torch.nn import BatchNorm1d, Conv1d, Flatten, Linear, ReLU, Sequential\n", ""
    )
    without = without.replace("BatchNorm1d(16), ", "").replace("torch.optim.", "")
    assert GROUP_NORM not in {fix.title.split()[0] for fix in finding(without).fixes}


# -------------------------------------------------------------------------------------------------- experiment


class Seen:
    """What stood at the optimizer's first step: its gradients, and the model as the training code set it."""

    def __init__(self, model):
        self.model = model
        self.copy = self.optimizer = None

    def __call__(self, optimizer, *_):
        if self.copy is None:
            self.optimizer = optimizer
            self.copy = copy.deepcopy(self.model)
            for ours, theirs in zip(self.copy.parameters(), self.model.parameters(), strict=True):
                ours.accumulated = theirs.grad.clone()


def distance(source, x, y, hold=False):
    """How far the accumulated gradient is from that of the whole batch, as a share of its norm."""
    seen = observed(source, x, y, hold)
    accumulated = torch.cat([each.accumulated.flatten() for each in seen.copy.parameters()])
    seen.copy.zero_grad()
    run(source)["criterion"](seen.copy(x), y).backward()
    wanted = torch.cat([each.grad.flatten() for each in seen.copy.parameters()])
    return ((accumulated - wanted).norm() / wanted.norm()).item()


def observed(source, x, y, hold=False):
    torch.manual_seed(5)
    names = run(source)
    model = names["build"]()
    for layer in batch_norms(model):  # statistics as after a pretraining, so that eval mode is not the identity
        layer.running_mean.normal_()
        layer.running_var.uniform_(0.5, 2.0)
        if hold:
            layer.eval()
            layer.train = lambda mode=True, layer=layer: layer
    seen = Seen(model)
    hook = register_optimizer_step_pre_hook(seen)
    try:
        names["train"](model, list(zip(x.chunk(MICRO_BATCHES), y.chunk(MICRO_BATCHES), strict=True)))
    finally:
        hook.remove()
    assert seen.copy is not None, "the script never stepped"
    return seen


def model_after(source, x, y):
    return observed(source, x, y).copy


def run(source):
    names = {"__name__": "script"}
    exec(compile(source, "train.py", "exec"), names)
    return names


def batch_norms(model):
    return [layer for layer in model.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]


def finding(source):
    found = [each for each in lint(source, "/project/train.py", Workspace(None)) if each.code == "BN501"]
    assert len(found) == 1, found
    return found[0]


def offered(source, title):
    return next(fix for fix in finding(source).fixes if fix.title.startswith(title))
