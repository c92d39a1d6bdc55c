"""What the user states about a project, where no text of it tells: ``variable-length``, ``grad-accumulation``."""

from dataclasses import replace
from typing import NamedTuple

from firstfault.lint.bindings import Number
from firstfault.lint.script import Script
from firstfault.lint.window import Window


class Facts(NamedTuple):
    variable_length: bool | None = None  # whether micro-batches hold different numbers of counted tokens
    grad_accumulation: int | None = None  # micro-batches per optimizer step


def state(script: Script, facts: Facts) -> None:
    """To be said before any rule looks at the script."""
    script.memo[Facts] = facts


def stated(script: Script) -> Facts:
    facts: Facts = script.memo.get(Facts, Facts())
    return facts


def state_trainer_size(script: Script, size: tuple[str, Number | None] | None) -> None:
    """What a Trainer in another file gets as the window: its text, and its number where it has one."""
    script.memo[state_trainer_size] = size


def trainer_size_elsewhere(script: Script) -> tuple[str, Number | None] | None:
    size: tuple[str, Number | None] | None = script.memo.get(state_trainer_size)
    return size


def stated_window(script: Script, window: Window | None) -> Window | None:
    """The window with the stated size, where the text tells none, or only a default that can be overridden."""
    size = stated(script).grad_accumulation
    if window is None or size is None or (window.resolved is not None and window.resolved.origin != "default"):
        return window
    return replace(window, resolved=Number(size, "constant", window.node))
