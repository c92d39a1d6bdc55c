"""``python -m firstfault``."""

from firstfault.cli import run

run()
