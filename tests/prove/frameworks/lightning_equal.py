"""Automatic optimization over micro-batches that hold the same number of targets."""

from lightning_tiny import Model, fit
from tiny import ALIKE, text

fit(Model(), text(ALIKE))
