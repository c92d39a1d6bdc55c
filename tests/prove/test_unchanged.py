"""With and without probes a training comes to the same weights and random numbers, to the last bit."""

from pathlib import Path

import pytest
from measuring import Warm

HERE = Path(__file__).parent
SCRIPTS = [
    "faulty/bn501_batchnorm.py",
    "faulty/bn503_checkpointed.py",
    "faulty/ga101_mean_of_means.py",
    "faulty/ga209_clip_each.py",
    "faulty/ga212_ema_each.py",
    "faulty/ga303_no_sync_on_step.py",
    "right/closure.py",
    "right/contrastive_cached.py",
    "right/ranks.py",
    "right/scaler.py",
    "right/sharpness_aware_batchnorm.py",
    "scripts/dropout_and_workers.py",
    "scripts/several_models.py",
]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_training_is_the_same_to_the_last_bit(name: str, process: Warm) -> None:
    ranks = 2 if "ranks" in name or "ga30" in name else 1
    plain, probed = (process.ended_in(HERE / name, probes, ranks) for probes in (False, True))
    assert plain == probed and len(plain) == ranks
