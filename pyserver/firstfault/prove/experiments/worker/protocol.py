"""The user's probe: a file with ``build()``, ``batch(n)`` and some optional functions (docs/probe.md).

Whatever goes wrong in the user's own code becomes a ``ProbeFault``: one sentence, and the user's traceback, short.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from firstfault.prove.experiments.worker.control import seed

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
entered: list[Callable[[str], None]] = []  # told which of the user's functions runs, in case it hangs
_MOST_FRAMES, _MOST_CHARACTERS = 8, 2000


class ProbeFault(Exception):
    """Why the experiment cannot run."""

    def __init__(self, sentence: str, trace: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.trace = trace


class Probe(NamedTuple):
    build: Callable[..., Any]
    batch: Callable[[int], Any]
    accumulate: Callable[[Any, list[Any]], Any] | None
    objective: Callable[[Any, Any], Any] | None
    uniform: Callable[[int], Any] | None
    collate: Callable[[list[Any]], Any] | None
    wrap: Callable[[Any], Any] | None  # the model of one rank of several; DistributedDataParallel where it is missing


def load(path: str) -> Probe:
    """The functions of a probe, from a fresh run of its file: what one leg counted up is no start for the next."""
    shown = os.path.basename(path)
    module = ModuleType(os.path.splitext(shown)[0])
    module.__file__ = path
    sys.modules[module.__name__] = module
    seed(0)
    call(f"The probe {shown}", exec, _compiled(path, shown), module.__dict__)
    found = {name: getattr(module, name, None) for name in Probe._fields}
    for name in ("build", "batch"):
        if not callable(found[name]):
            raise ProbeFault(f"{shown} defines no {name}({'n' if name == 'batch' else ''}).")
    return Probe(**{name: each if callable(each) else None for name, each in found.items()})  # type: ignore[arg-type]


def _compiled(path: str, shown: str) -> Any:
    try:
        with open(path, "rb") as file:
            return compile(file.read(), path, "exec", dont_inherit=True)
    except OSError as error:
        raise ProbeFault(f"{shown} cannot be read: {error.strerror or error}.") from error
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise ProbeFault(f"{shown}{line} is not Python: {getattr(error, 'msg', None) or error}.") from error


def call(where: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a piece of the user's code."""
    for tell in entered:
        tell(where)
    try:
        return function(*arguments)
    except ProbeFault:
        raise
    except SystemExit as error:
        raise ProbeFault(f"{where} ended Python (exit status {error.code}).", user_trace(error)) from error
    except Exception as error:
        hint = " The experiment runs on the CPU and shows no GPU." if _wants_gpu(error) else ""
        raise ProbeFault(f"{where} raised {type(error).__name__}.{hint}", user_trace(error)) from error


def _wants_gpu(error: Exception) -> bool:
    return any(word in str(error) for word in ("CUDA", "NVIDIA", "HIP"))


def user_trace(error: BaseException) -> str:
    """The traceback as Python prints it, with the user's own frames and the one that raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not each.filename.startswith(_PACKAGE)]
    kept = [each for each in own if f"{os.sep}torch{os.sep}" not in each.filename or each is own[-1]]
    kept = [each for each in kept if not each.filename.startswith("<frozen")][-_MOST_FRAMES:]
    head = ["Traceback (most recent call last):\n", *traceback.format_list(kept)] if kept else []
    text = "".join([*head, *traceback.format_exception_only(type(error), error)]).rstrip()
    return (
        text
        if len(text) <= _MOST_CHARACTERS
        else f"{text[: _MOST_CHARACTERS // 2]}\n...\n{text[-_MOST_CHARACTERS // 2 :]}"
    )
