"""Literals that would make a common line interesting for ever.

A shape lacks digits and most signs. A literal that loses nearly all of itself so ("[E050]" becomes "E") seems to stand
in the commonest lines, and one with digits is never found to be mistaken: each block of a large log would be walked.
"""

import pytest

from firstfault.logs.anchors import Anchors
from firstfault.logs.shapes import DROPPED, _has_digit, _literals

COMMON = [
    "Epoch 3:  41%|####      | 412/1000 [05:55<08:20,  1.17it/s, loss=2.3, v_num=1]",
    "[rank3]: step 100 loss 2.3100 grad_norm 0.913 lr 3.0e-04 tokens/s 18022",
    '{"ts": "2026-11-30T10:00:07.001Z", "level": "info", "event": "metrics", "step": 7, "error_rate": 0.0}',
    "{'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 0.1}",
    "node-1:4217:4291 [2] NCCL INFO Channel 02/16 : 2[2] -> 3[3] via P2P/CUMEM",
    " iteration 100/ 5000 | lm loss: 2.1E+00 | loss scale: 1.0 | grad norm: 1.2 | number of nan iterations:   0 |",
    "2026-11-30 10:00:00,000 - root - INFO - step: 10  loss:  7.1234  memory:  1.01GiB(1.06%)  tps: 1,234",
    "INFO:EXTRA:Evaluation 7/8 ended; Error rate 0.02, MAE 0.1, E 3",
]


@pytest.mark.parametrize("line", COMMON)
def test_no_literal_with_a_digit_seems_to_stand_in_a_common_line(line: str) -> None:
    shape = line.encode().translate(None, DROPPED)
    found = Anchors(_literals(), DROPPED).found([shape]).get(shape, ())
    assert [each for each in found if _has_digit(each) and each not in line.encode()] == []
