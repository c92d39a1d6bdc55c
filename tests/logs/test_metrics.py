"""The lines of metrics of many trainers, read as values. The lines are written after what these trainers print."""

# ruff: noqa: E501 - lines of logs are as long as they are printed

import math

import pytest

from firstfault.logs.metrics import Reading, readings
from reading import read

LINES = [
    ("own", "step 100 loss 2.31", {"step": 100, "loss": 2.31}),
    ("own, eval beside", "step 250: train loss 2.1, val loss 2.2", {"step": 250, "train loss": 2.1, "eval": 2.2}),
    ("own, brackets", "[epoch]: 199, [batch]: 23900, [loss]: 4.9941", {"epoch": 199, "step": 23900, "loss": 4.9941}),
    ("own, counts", "Epoch:[0/19](100/24681) loss:5.251 lr:0.0002 left:98.0min", {"epoch": 0, "step": 100, "loss": 5.251}),
    ("own, table", "Epoch 42 |   Training | Elapsed Time: 2:40:25 | Steps: 6275 | Loss: 4.61", {"step": 6275, "loss": 4.61}),
    ("tensor", "loss: tensor(2.3026, grad_fn=<NllLossBackward0>)", {"loss": 2.3026}),
    ("nanoGPT", "iter 100: loss 3.2, time 20.10ms, mfu 3.10%", {"step": 100, "loss": 3.2}),
    ("ImageNet example", "Epoch: [0][  10/196]\tTime  0.3 ( 0.5)\tLoss 2.30e+00 (2.4)", {"epoch": 0, "step": 10, "loss": 2.3}),
    ("tqdm", "Epoch 3:  41%|####      | 412/1000 [05:55<08:20,  1.17it/s, loss=nan]", {"epoch": 3, "step": 412, "loss": math.nan}),
    (
        "Lightning",
        "Epoch 0:  60%|######    | 6/10 [00:00<00:00, 9.1it/s, v_num=3, train_loss=2.31, val_loss=1.2]",
        {"epoch": 0, "step": 6, "train loss": 2.31, "eval": 1.2},
    ),
    (
        "transformers 4",
        "{'loss': 2.3, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 0.1}",
        {"loss": 2.3, "norm": 1.2, "rate": 1e-5, "epoch": 0.1},
    ),
    (
        "transformers 5",
        "{'loss': '2.3', 'grad_norm': 'nan', 'learning_rate': '1e-05', 'epoch': '0.1'}",
        {"loss": 2.3, "norm": math.nan, "rate": 1e-5, "epoch": 0.1},
    ),
    ("transformers, evaluation", "{'eval_loss': 1.25, 'eval_runtime': 12.5, 'epoch': 1.0}", {"eval": 1.25, "epoch": 1}),
    (
        "ms-swift",
        '{"loss": 0.667, "grad_norm": 0.23, "learning_rate": 4.3e-05, "epoch": 0.278, "global_step/max_steps": "601/2161"}',
        {"loss": 0.667, "norm": 0.23, "step": 601},
    ),
    (
        "Megatron",
        " iteration      100/    5000 | consumed samples:  800 | elapsed time per iteration (ms): 4247.9 | learning rate: "
        "2.999E-04 | lm loss: 2.1E+00 | loss scale: 65536.0 | grad norm: 1.234 | number of nan iterations:   0 |",
        {"step": 100, "lm loss": 2.1, "scale": 65536, "norm": 1.234, "rate": 2.999e-4},
    ),
    (
        "Megatron, several losses",
        " iteration       29/    6069 | lm loss: 8.7E-01 | seq_load_balancing_loss: 1.2E+00 | mtp_1 loss: 1.1E+00 | loss scale: 1.0 |",
        {"step": 29, "lm loss": 0.87, "mtp 1 loss": 1.1, "scale": 1},
    ),
    ("sd-scripts", "steps:  13%|####      | 440/3300 [21:33<2:20:06,  2.94s/it, avr_loss=nan]", {"step": 440, "avr loss": math.nan}),
    (
        "DeepSpeed",
        "[2026-11-30 10:00:00,018] [INFO] [loss_scaler.py:181:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. "
        "Attempted loss scale: 64, reducing to 32",
        {"scale": 32, "skipped": 1},
    ),
    ("apex", "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0", {"scale": 32768, "skipped": 1}),
    (
        "NeMo",
        "Training epoch 0, iteration 99/999 | lr: 2.9e-05 | global_batch_size: 32 | global_step: 99 | reduced_train_loss: 2.3",
        {"epoch": 0, "step": 99, "reduced train loss": 2.3},
    ),
    ("torchtune", "1|100|Loss: 1.234:  10%|#         | 100/1000", {"step": 100, "loss": 1.234}),
    ("torchtitan", "[titan] 2026-11-30 10:00:00,000 - root - INFO - step: 10  loss:  7.1234  grad_norm:  1.2  tps: 1,234",
     {"step": 10, "loss": 7.1234, "norm": 1.2}),
    (
        "fairseq",
        "| epoch 001 | loss 7.2 | ppl 150 | wps 100 | ups 2 | num_updates 100 | lr 0.0001 | gnorm 1.2 | loss_scale 128",
        {"epoch": 1, "step": 100, "loss": 7.2, "norm": 1.2, "scale": 128},
    ),
    (
        "fairseq, JSON",
        '{"epoch": 1, "update": 0.1, "loss": "7.2", "num_updates": "100", "gnorm": "1.2", "loss_scale": "128"}',
        {"epoch": 1, "step": 100, "loss": 7.2, "norm": 1.2, "scale": 128},
    ),
    (
        "mmengine",
        "2026/11/30 10:00:00 - mmengine - INFO - Epoch(train)  [1][ 100/3125]  lr: 1.0e-03  grad_norm: 3.2  loss: 1.9  loss_cls: 1.3",
        {"epoch": 1, "step": 100, "loss": 1.9, "norm": 3.2},
    ),
    ("Keras", "6/6 [==============================] - 3s 31ms/step - loss: nan - val_loss: nan", {"loss": math.nan, "eval": math.nan}),
    ("games", "[3/25][300/1583] Loss_D: 0.5 Loss_G: 3.2 D(x): 0.7", {"loss d": 0.5, "loss g": 3.2, "game": 1}),
]  # fmt: skip


def values_of(reading: Reading) -> dict[str, float]:
    named = {
        "step": reading.step, "epoch": reading.epoch, "eval": reading.eval_loss, "norm": reading.grad_norm,
        "scale": reading.scale, "rate": reading.rate, "skipped": reading.skipped or None, "game": reading.game or None,
    }  # fmt: skip
    return {**reading.losses, **{name: float(value) for name, value in named.items() if value is not None}}


@pytest.mark.parametrize(("text", "wanted"), [each[1:] for each in LINES], ids=[each[0] for each in LINES])
def test_a_trainers_line_is_read(text: str, wanted: dict[str, float]) -> None:
    found = [values_of(each) for each in readings(read(text + "\n").lines)]
    assert len(found) == 1
    for name, value in wanted.items():
        assert found[0].get(name) == pytest.approx(value, nan_ok=True), found[0]


@pytest.mark.parametrize(
    "text",
    [
        "    loss = F.cross_entropy(logits, labels)",
        "    loss.backward()",
        "INFO guard: training stops when the loss is NaN for 10 steps",
        "best val loss: inf",
        "loss_scaler.py:181: dynamic loss scale window",
        "saved the model with the lowest loss",
        "lossless compression: 3",
    ],
)
def test_what_tells_no_value_is_not_read(text: str) -> None:
    assert not [each for each in readings(read(text + "\n").lines) if each.losses or each.grad_norm or each.scale]


def test_columns_are_read_below_their_header() -> None:
    text = (
        "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
        "      21/55      9.95G      0.233       5.07        nan         12        640: 100%|####| 787/787 [09:07<00:00]\n"
        "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95)\n"
        "                   all       1049       1186      0.929      0.872      0.933      0.543\n"
    )
    found = [values_of(each) for each in readings(read(text).lines)]
    assert len(found) == 1
    assert found[0] == pytest.approx(
        {"epoch": 21, "box loss": 0.233, "cls loss": 5.07, "dfl loss": math.nan}, nan_ok=True
    )


def test_an_epoch_alone_on_a_line_holds_for_those_below() -> None:
    text = "Epoch 3/10\n6/6 [====] - 1s - loss: 0.5\nEpoch 4/10\n6/6 [====] - 1s - loss: 0.4\n"
    assert [(each.epoch, each.losses["loss"]) for each in readings(read(text).lines)] == [(3, 0.5), (4, 0.4)]
