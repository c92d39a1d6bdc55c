"""Firstfault finds the first fault of a PyTorch training run: in its logs, in its script, by experiment."""

__version__ = "0.1.0"
