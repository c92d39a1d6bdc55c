"""Automatic optimization divides a mean by the number of micro-batches, whatever they hold."""

from lightning_tiny import Model, fit
from tiny import text

fit(Model(), text())
