"""Every row of the table of signatures: a faulty probe that gets its name, and its right twin that gets none."""

import pytest
import torch
from experiment import TAGGER, codes, proved

MEAN_OF_MEANS = """
def accumulate(model, micro_batches):
    for tokens, labels in micro_batches:
        (mean(model, tokens, labels) / len(micro_batches)).backward()
"""
UNDIVIDED = """
def accumulate(model, micro_batches):
    targets = sum((labels != -100).sum() for _, labels in micro_batches)
    for tokens, labels in micro_batches:
        (total(model, tokens, labels) * len(micro_batches) / targets).backward()
"""
TWICE = """
class Accelerator:
    def __init__(self, steps):
        self.steps = steps

    def backward(self, loss):
        (loss / self.steps).backward()


def accumulate(model, micro_batches):
    accelerator = Accelerator(len(micro_batches))
    targets = sum((labels != -100).sum() for _, labels in micro_batches)
    for tokens, labels in micro_batches:
        accelerator.backward(total(model, tokens, labels) / targets FACTOR)
"""
WIPED = """
def accumulate(model, micro_batches):
    model.zero_grad()
    for tokens, labels in micro_batches:
        model.zero_grad()
        (mean(model, tokens, labels) / len(micro_batches)).backward()
"""
ALL_AT_WRONG_COUNT = """
def accumulate(model, micro_batches):
    targets = sum(labels.numel() for _, labels in micro_batches)
    for tokens, labels in micro_batches:
        (total(model, tokens, labels) / targets).backward()
"""
SHIFTED_BY_THE_MODEL = """
def total(model, tokens, labels):
    return F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")


def objective(model, batch):
    tokens, labels = batch
    return total(model, tokens, labels), (labels[:, 1:] != -100).sum()


def accumulate(model, micro_batches):
    targets = sum((COUNTED != -100).sum() for _, labels in micro_batches)
    for tokens, labels in micro_batches:
        (total(model, tokens, labels) / targets).backward()
"""
PAIRS = """
def build():
    return nn.Sequential(nn.Linear(9, 6), nn.Tanh(), nn.Linear(6, 4))


def batch(n):
    return torch.randn(n, 9), torch.randn(n, 9)


def total(model, left, right):
    scores = F.normalize(model(left), dim=-1) @ F.normalize(model(right), dim=-1).T
    return LOSS


def objective(model, batch):
    return total(model, *batch), len(batch[0])


def accumulate(model, micro_batches):
    pairs = sum(len(left) for left, _ in micro_batches)
    for left, right in micro_batches:
        (total(model, left, right) / pairs).backward()
"""
CONTRASTIVE = PAIRS.replace("LOSS", 'F.cross_entropy(scores / 0.1, torch.arange(len(scores)), reduction="sum")')
EACH_PAIR = PAIRS.replace("LOSS", "(1 - scores.diagonal()).sum()")
PENALTY = """
def penalty(model):
    return 0.01 * sum(each.square().sum() for each in model.parameters())


def objective(model, batch):
    tokens, labels = batch
    targets = (labels != -100).sum()
    return total(model, tokens, labels) + targets * penalty(model), targets


def accumulate(model, micro_batches):
    targets = sum((labels != -100).sum() for _, labels in micro_batches)
    for tokens, labels in micro_batches:
        (total(model, tokens, labels) / targets + penalty(model) SCALE).backward()
"""
GROWING = """
def accumulate(model, micro_batches):
    targets, more = sum((labels != -100).sum() for _, labels in micro_batches), (len(micro_batches) - 1) ** 2
    for tokens, labels in micro_batches:
        penalty = more * sum(each.square().sum() for each in model.parameters())
        (total(model, tokens, labels) / targets + penalty).backward()
"""
STEPPING = """
import functools


class Descent(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    def step(self):
        for group in self.param_groups:
            for each in group["params"]:
                each.data.sub_(each.grad, alpha=group["lr"])


def accumulate(model, micro_batches):
    optimizer, steps = Descent(model.parameters(), 0.1), len(micro_batches)
    CLEAR
    targets = sum((labels != -100).sum() for _, labels in micro_batches)
    for i, (tokens, labels) in enumerate(micro_batches):
        (total(model, tokens, labels) / targets).backward()
        PER_MICRO_BATCH
        if BOUNDARY:
            optimizer.step()
"""


def stepping(boundary: str = "(i + 1) % steps == 0", clear: str = "model.zero_grad()", per_micro: str = "pass") -> str:
    return STEPPING.replace("BOUNDARY", boundary).replace("CLEAR", clear).replace("PER_MICRO_BATCH", per_micro)


TABLE = [
    # name of the fault, the faulty probe, its right twin
    ("token-denominator", MEAN_OF_MEANS, ""),
    ("not-divided", UNDIVIDED, ""),
    ("divided-twice", TWICE.replace("FACTOR", ""), TWICE.replace("FACTOR", "* len(micro_batches)")),
    ("window-wiped", WIPED, ""),
    ("common-mode", SHIFTED_BY_THE_MODEL.replace("COUNTED", "labels"),
     SHIFTED_BY_THE_MODEL.replace("COUNTED", "labels[:, 1:]")),
    ("common-mode", ALL_AT_WRONG_COUNT, ""),
    ("repeated-term", PENALTY.replace("SCALE", ""), PENALTY.replace("SCALE", "/ len(micro_batches)")),
    ("other", GROWING, ""),
    ("coupled-loss", CONTRASTIVE, EACH_PAIR),
    ("loop-fault", stepping("i % steps == 0"), stepping()),
    ("loop-fault", stepping("True"), stepping()),
    ("loop-fault", stepping(clear="pass"), stepping()),
    ("loop-fault", stepping(per_micro="optimizer.param_groups[0]['lr'] *= 0.5"), stepping()),
]  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize(("code", "faulty", "right"), TABLE, ids=lambda each: each if "\n" not in each else "")
def test_a_fault_gets_its_name_and_its_right_twin_none(tmp_path, code, faulty, right):
    found = proved(tmp_path, TAGGER, faulty)
    assert found.verdict == "fault" and codes(found) == [code], found
    twin = proved(tmp_path, TAGGER, right)
    assert (twin.verdict, twin.faults, twin.missing) == ("no-fault", [], []), twin


# ---------------------------------------------------------------------------------------------- textbook figures


def test_ten_and_ninety_tokens_weigh_nine_to_one(tmp_path):
    lengths = "def batch(n):\n    tokens, labels = torch.randint(0, 23, (2, 90)), torch.randint(0, 7, (2, 90))\n"
    lengths += "    labels[0, 10:] = -100\n    return tokens, labels\n"
    found = proved(tmp_path, TAGGER, lengths, MEAN_OF_MEANS, samples=2, micro_batches=2)
    uneven, even = found.measured["variable"], found.measured["uniform"]
    weights = [share / count for share, count in zip(uneven["shares"], uneven["counts"], strict=True)]
    assert weights == pytest.approx([1 / 20, 1 / 180], rel=1e-12)
    assert "10 and 90 targets" in found.faults[0].reason and "ratio 9.0000" in found.faults[0].reason
    assert even["B/C"]["error"] < 1e-15 < 1 < uneven["B/C"]["error"]


def test_a_mean_that_is_not_divided_is_two_faults(tmp_path):
    undivided = MEAN_OF_MEANS.replace(" / len(micro_batches)", "")
    found = proved(tmp_path, TAGGER, undivided)
    assert codes(found) == ["not-divided", "token-denominator"]
    assert found.measured["uniform"]["B/C"]["ratio"] == pytest.approx(4, rel=1e-12)


def test_the_control_equalises_the_denominator_of_the_loss_itself(tmp_path):
    weighted = """
    WEIGHT = torch.rand(7) + 0.1

    def objective(model, batch):
        tokens, labels = batch
        weight = WEIGHT.to(model.head.weight.dtype)
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), weight=weight, reduction="sum")
        return loss, weight[labels[labels != -100]].sum()

    def mean(model, tokens, labels):
        weight = WEIGHT.to(model.head.weight.dtype)
        return F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), weight=weight)
    """
    found = proved(tmp_path, TAGGER, weighted, MEAN_OF_MEANS)
    assert codes(found) == ["token-denominator"]
    assert len(set(found.measured["variable"]["counts"])) == 4  # sums of class weights
    assert found.measured["uniform"]["B/C"]["error"] < 1e-15


# ---------------------------------------------------------------------------------------------- norms


IMAGES = """
import torch
import torch.nn.functional as F
from torch import nn


def build():
    return nn.Sequential(nn.Conv2d(3, 8, 3), NORM, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))


def batch(n):
    return torch.randn(n, 3, 8, 8), torch.randint(0, 5, (n,))


def objective(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="sum"), len(batch[1])


def accumulate(model, micro_batches):
    for images, labels in micro_batches:
        (F.cross_entropy(model(images), labels) / len(micro_batches)).backward()
"""
FROZEN = """
def build():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
    model[1].eval()
    return model
"""
CORRECTED = """
def build(window):
    momentum = 1 - (1 - 0.1) ** (1 / window)
    norm = nn.BatchNorm2d(8, momentum=momentum)
    return nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
"""


@pytest.mark.parametrize("norm", ["nn.GroupNorm(4, 8)", "nn.LayerNorm([8, 6, 6])", "nn.InstanceNorm2d(8)"])
def test_norms_of_one_sample_are_equal(tmp_path, norm):
    found = proved(tmp_path, IMAGES.replace("NORM", norm), samples=32, micro_batches=8)
    assert found.verdict == "no-fault" and found.measured["variable"]["B/C"]["error"] < 1e-14


def test_frozen_batchnorm_is_equal(tmp_path):
    found = proved(tmp_path, IMAGES, FROZEN, samples=32, micro_batches=8)
    assert found.verdict == "no-fault" and found.measured["batchnorm"] is None


@pytest.mark.parametrize("norm", ["nn.BatchNorm2d(8)", "nn.BatchNorm2d(8, track_running_stats=False)"])
def test_batchnorm_differs(tmp_path, norm):
    found = proved(tmp_path, IMAGES.replace("NORM", norm), samples=32, micro_batches=8)
    assert codes(found) == ["batchnorm"]
    assert found.measured["variable"]["B/C"]["error"] < 1e-14 and found.measured["batchnorm"]["pair"]["error"] > 0.01
    if "track" not in norm:
        assert "8 updates a step: momentum 0.1 acts as 0.5695" in found.faults[0].reason


def test_corrected_momentum_restores_the_running_mean_and_not_the_variance(tmp_path):
    plain = proved(tmp_path, IMAGES.replace("NORM", "nn.BatchNorm2d(8)"), samples=32, micro_batches=8)
    found = proved(tmp_path, IMAGES, CORRECTED, samples=32, micro_batches=8)
    before, after = plain.measured["batchnorm"], found.measured["batchnorm"]
    assert codes(found) == ["batchnorm"]  # the gradient differs as before: the correction is no fix
    assert after["pair"]["error"] == pytest.approx(before["pair"]["error"], rel=1e-9)
    assert before["running_mean"] > 3 and after["running_mean"] < 0.1
    assert before["running_var"] > 3 and after["running_var"] > 1e-3


def test_batchnorm_and_the_token_denominator_are_told_apart(tmp_path):
    normed = """
    class Channels(nn.BatchNorm1d):
        def forward(self, features):
            return super().forward(features.transpose(1, 2)).transpose(1, 2)

    def build():
        return Tagger(Channels(12))
    """
    assert codes(proved(tmp_path, TAGGER, normed)) == ["batchnorm"]
    assert codes(proved(tmp_path, TAGGER, normed, MEAN_OF_MEANS)) == ["token-denominator", "batchnorm"]


# ---------------------------------------------------------------------------------------------- dropout and chance


@pytest.mark.parametrize(
    "layer", ["nn.Dropout(0.3)", "nn.TransformerEncoderLayer(12, 2, 16, dropout=0.3, batch_first=True)", "Always()"]
)
def test_dropout_of_every_kind_is_off_and_told(tmp_path, layer):
    always = """
    class Always(nn.Module):
        def forward(self, features):
            return F.dropout(features, 0.3)
    """
    found = proved(tmp_path, TAGGER, always, f"def build():\n    return Tagger({layer}, nn.Dropout(0.1))\n")
    assert found.verdict == "no-fault" and found.measured["variable"]["B/C"]["error"] < 1e-14
    assert found.measured["dropout"]["error"] > 0.01
    assert any("that is randomness, no fault" in note for note in found.notes)


def test_chance_that_cannot_be_turned_off_leaves_the_question_open(tmp_path):
    noisy = """
    class Noise(nn.Module):
        def forward(self, features):
            return features + 0.1 * torch.randn_like(features)

    def build():
        return Tagger(Noise())
    """
    found = proved(tmp_path, TAGGER, noisy)
    assert found.verdict == "inconclusive" and "with other random numbers" in found.missing[0].fact


# ---------------------------------------------------------------------------------------------- what stays open


def test_equal_counts_do_not_test_the_denominator(tmp_path):
    equal = "LENGTHS = [6]\n"
    found = proved(tmp_path, TAGGER, equal, MEAN_OF_MEANS)
    assert found.verdict == "inconclusive"
    assert found.missing[0].fact == "Every micro-batch counts 12 targets, so the denominator was not put to the test."


def test_without_an_objective_b_is_compared_with_a(tmp_path):
    found = proved(tmp_path, TAGGER, MEAN_OF_MEANS, "objective = None\n")
    assert codes(found) == ["token-denominator"]
    assert "ratio 3.5000" in found.faults[0].reason  # torch itself tells what each loss has divided by
    assert "a fault that both share is not seen" in found.notes[0]
    hidden = proved(tmp_path, TAGGER, ALL_AT_WRONG_COUNT, "objective = None\n")
    assert not hidden.faults


def test_a_micro_batch_without_targets_is_named(tmp_path):
    masked = """
    def mean(model, tokens, labels):
        mask = (labels != -100).flatten()
        each = F.cross_entropy(model(tokens).flatten(0, 1), labels.clamp(min=0).flatten(), reduction="none")
        return (each * mask).sum() / mask.sum()
    """
    found = proved(tmp_path, TAGGER, "LENGTHS = [0, 0, 5, 3]\n", masked, MEAN_OF_MEANS)
    assert codes(found) == ["not-finite"] and "the mean over none is NaN" in found.faults[0].reason
    assert proved(tmp_path, TAGGER, "LENGTHS = [0, 0, 5, 3]\n").verdict == "no-fault"


def test_clipping_and_half_precision_are_no_reason_to_differ(tmp_path):
    clipped = stepping().replace("optimizer.step()", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)")
    found = proved(tmp_path, TAGGER, clipped)
    assert found.verdict == "no-fault" and "Left out, since it changes gradients on purpose: clipping." in found.notes
    cast = "def total(model, tokens, labels):\n    logits = model(tokens).float().flatten(0, 1)\n"
    cast += "    return F.cross_entropy(logits, labels.flatten(), reduction='sum')\n"
    found = proved(tmp_path, TAGGER, cast)
    assert found.verdict == "no-fault" and found.measured["variable"]["B/C"]["error"] < 1e-14


def test_a_model_that_needs_single_precision_gets_wider_thresholds(tmp_path):
    single = "def build():\n    return Tagger(Single())\n\nclass Single(nn.Module):\n    def forward(self, features):\n"
    single += "        assert features.dtype == torch.float32, 'single precision only'\n        return features\n"
    found = proved(tmp_path, TAGGER, single)
    assert found.verdict == "no-fault" and found.measured["precision"] == "float32" and found.limits.equal == 5e-6
    assert codes(proved(tmp_path, TAGGER, single, MEAN_OF_MEANS)) == ["token-denominator"]


# ---------------------------------------------------------------------------------------------- shapes of the data


LANGUAGE_MODEL = """
from types import SimpleNamespace


class Model(Tagger):
    def forward(self, input_ids, labels=None, attention_mask=None):
        logits = super().forward(input_ids)
        shifted = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        return SimpleNamespace(logits=logits, loss=F.cross_entropy(*shifted))


def build():
    model = Model()
    model.head = nn.Linear(12, 23)
    return model.eval()


def batch(n):
    ids = torch.randint(0, 23, (n, 12))
    labels = ids.clone()
    for row in range(n):
        labels[row, LENGTHS[row] + 1 :] = -100
    return {"input_ids": ids, "labels": labels, "attention_mask": torch.ones_like(ids)}


objective = accumulate = None
"""


def test_a_model_that_computes_its_own_loss_needs_two_functions_only(tmp_path):
    found = proved(tmp_path, TAGGER, LANGUAGE_MODEL)
    assert codes(found) == ["token-denominator"]
    assert found.measured["variable"]["counts"] == [13, 6, 20, 7]  # of the next labels
    assert any("each next label" in note for note in found.notes)
    assert any("has no accumulate()" in note for note in found.notes)


def test_samples_of_different_shapes_are_joined_by_collate(tmp_path):
    ragged = """
    def batch(n):
        return [(torch.randint(0, 23, (size,)), torch.randint(0, 7, (size,))) for size in LENGTHS[:n]]

    def collate(samples):
        pad = nn.utils.rnn.pad_sequence
        tokens, labels = zip(*samples)
        return pad(tokens, batch_first=True), pad(labels, batch_first=True, padding_value=-100)
    """
    assert codes(proved(tmp_path, TAGGER, ragged, MEAN_OF_MEANS)) == ["token-denominator"]
    assert proved(tmp_path, TAGGER, ragged).verdict == "no-fault"


def test_a_probe_may_bring_its_own_control(tmp_path):
    own = "def uniform(n):\n    return torch.randint(0, 23, (n, 12)), torch.randint(0, 7, (n, 12))\n"
    found = proved(tmp_path, TAGGER, own, MEAN_OF_MEANS)
    assert codes(found) == ["token-denominator"] and found.measured["uniform"]["kind"] == "uniform()"


def test_what_one_leg_counts_up_is_no_start_for_the_next(tmp_path):
    counter = """
    SEEN = []

    def accumulate(model, micro_batches):
        targets = sum((labels != -100).sum() for _, labels in micro_batches)
        for tokens, labels in micro_batches:
            SEEN.append(1)
            (total(model, tokens, labels) / targets * (len(SEEN) <= len(micro_batches))).backward()
            tokens.zero_()
    """
    assert proved(tmp_path, TAGGER, counter).verdict == "no-fault"


def test_where_counts_cannot_differ_nothing_is_open(tmp_path):
    regression = """
    objective = None

    def build():
        return nn.Linear(9, 3)

    def batch(n):
        return torch.randn(n, 9), torch.randn(n, 3)

    def accumulate(model, micro_batches):
        for inputs, wanted in micro_batches:
            (F.mse_loss(model(inputs), wanted) / len(micro_batches)).backward()
    """
    found = proved(tmp_path, TAGGER, regression)
    assert (found.verdict, found.measured["variable"]["counts"]) == ("no-fault", [6, 6, 6, 6])


def test_autocast_and_a_gradient_scaler_do_not_disturb(tmp_path):
    mixed = """
    def accumulate(model, micro_batches):
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.zero_grad()
        targets = sum((labels != -100).sum() for _, labels in micro_batches)
        for tokens, labels in micro_batches:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = total(model, tokens, labels) / targets
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    """
    found = proved(tmp_path, TAGGER, mixed)
    assert found.verdict == "no-fault" and found.measured["variable"]["B/C"]["error"] < 1e-14
    assert found.measured["left_out"] == ["autocast", "gradient scaler"]


def test_sixteen_bits_prove_nothing(tmp_path):
    half = "class Half(nn.Module):\n    def forward(self, features):\n        assert features.dtype == torch.float32\n"
    half += "        return features.bfloat16().float()\n\ndef build():\n    return Tagger(Half())\n"
    found = proved(tmp_path, TAGGER, half)
    assert found.verdict == "inconclusive" and "computes in 16 bits" in found.missing[0].fact


def test_recomputation_sees_the_same_dropout(tmp_path):
    recomputed = """
    from torch.utils.checkpoint import checkpoint

    class Recomputed(nn.Module):
        def forward(self, features):
            return checkpoint(lambda each: F.dropout(torch.sin(each), 0.4), features, use_reentrant=False)

    def build():
        return Tagger(Recomputed())
    """
    assert proved(tmp_path, TAGGER, recomputed).verdict == "no-fault"
    assert codes(proved(tmp_path, TAGGER, recomputed, MEAN_OF_MEANS)) == ["token-denominator"]


def test_a_mean_of_samples_is_no_fault_where_samples_are_what_is_meant(tmp_path):
    ctc = """
    def build():
        return nn.Linear(6, 9)

    def batch(n):
        return torch.randn(n, 20, 6), torch.randint(1, 9, (n, 8)), torch.tensor([3, 5, 2, 7, 4, 6, 1, 8][:n])

    def loss(model, sounds, letters, lengths, reduction):
        scores = F.log_softmax(model(sounds), -1).transpose(0, 1)
        return F.ctc_loss(scores, letters, torch.full((len(sounds),), 20), lengths, reduction=reduction)

    def objective(model, batch):
        return (loss(model, *batch, "none") / batch[2]).sum(), len(batch[2])

    def accumulate(model, micro_batches):
        for batch in micro_batches:
            (loss(model, *batch, "mean") / len(micro_batches)).backward()
    """
    found = proved(tmp_path, TAGGER, ctc)
    assert (found.verdict, found.missing) == ("no-fault", []) and found.measured["variable"]["B/C"]["error"] < 1e-14
