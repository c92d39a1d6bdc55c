"""Put our own function around one of torch's, and take it off again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

Undo = Callable[[], None]
# torch.compile knows this function: what it guards is left out of the compiled graph, so there a probe sees nothing.
compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", lambda: False)


def wrap(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Undo:
    """Replace ``owner.name`` by ``make(original)``. Where there is no such name, nothing is done."""
    original = owner.__dict__.get(name) if isinstance(owner, type) else getattr(owner, name, None)
    if original is None or not callable(original):
        return lambda: None
    made = make(original)

    @functools.wraps(original)
    def ours(*arguments: Any, **named: Any) -> Any:
        return original(*arguments, **named) if compiling() else made(*arguments, **named)

    # torch.jit.script compiles the source of what it is given; it must be given torch's, not ours.
    ours.__prepare_scriptable__ = lambda: original  # type: ignore[attr-defined]
    setattr(owner, name, ours)

    def undo() -> None:
        if getattr(owner, name, None) is ours:
            setattr(owner, name, original)

    return undo


def all_of(undone: Iterable[Undo]) -> Undo:
    """One call that takes off all, the last one first."""
    kept = list(undone)

    def undo() -> None:
        while kept:
            kept.pop()()

    return undo
