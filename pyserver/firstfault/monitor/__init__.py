"""Watches a training run for faults of gradient accumulation and BatchNorm that raise no error.

    from firstfault.monitor import monitor

    with monitor(model, tensorboard=writer):
        train()

    hf_callback(trainer)                          # transformers
    Trainer(callbacks=[lightning_callback()])     # Lightning

The page is docs/monitor.md. This package is imported by training scripts: torch, nothing of the server, Python >= 3.9.
"""

from __future__ import annotations

from firstfault.monitor.trainers import hf_callback, lightning_callback
from firstfault.monitor.watching import Monitor

__all__ = ["Monitor", "hf_callback", "lightning_callback", "monitor"]

monitor = Monitor  # read as a verb: ``with monitor(model):``
