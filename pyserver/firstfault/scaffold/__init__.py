"""Writes a probe for a training script: what ``firstfault prove`` runs, with the script's own loop in it.

``scaffold(source, path)`` copies what the loop, the model and the data need, and says FILL IN where the text does not
tell. It never fails; of a script without an accumulating loop it makes the bare frame.
"""

import ast
import os

from firstfault.lint.script import Script, read_script
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.scaffold.data import batch_lines, objective_lines
from firstfault.scaffold.loop import LoopText, loop_text
from firstfault.scaffold.model import build_lines, model_of
from firstfault.scaffold.needed import Needed

_FILL = "FILL IN"


def scaffold(source: str, path: str) -> str:
    """The text of a probe for a script."""
    script = read_script(source, path)
    name = os.path.basename(path)
    loop = _accumulating(script) if script else None
    if script is None or loop is None:
        return _frame(name, script is not None)
    text = _probe(script, loop, name)
    return text if _parses(text) else _frame(name, parsed=True)


def _probe(script: Script, loop: TrainingLoop, name: str) -> str:
    needed = Needed(script, loop.window.size_text if loop.window else "")
    model = model_of(script, loop)
    text = loop_text(script, loop, model, needed)
    build = build_lines(script, loop, model, needed)
    batch = batch_lines(script, loop, needed)
    return _joined(name, needed, [build, batch, _accumulate(model, name, text), objective_lines(loop)])


def _parses(text: str) -> bool:
    """Pieces of a text with odd line breaks may not fit together; then the frame is better than what does not run."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def _accumulating(script: Script) -> TrainingLoop | None:
    """The first loop over batches that has a window; else the first that runs backward."""
    loops = [each for each in training_loops(script) if isinstance(each.node, ast.For)]
    return next((each for each in loops if each.window), None) or next(iter(loops), None)


def _joined(name: str, needed: Needed, parts: list[list[str]]) -> str:
    head = [
        f'"""A probe of {name}: `firstfault prove` runs it and compares the gradients of the loop below.',
        "",
        f"Lines that say {_FILL} hold what the script does not tell. Keep this file beside {name}, and make the model",
        "small: it is the loop that is tested.",
        '"""',
    ]
    sections = [
        "\n".join(head),
        "\n".join(needed.imports()),
        *needed.module_texts(),
        *("\n".join(part) for part in parts),
    ]
    return "\n\n\n".join(each for each in sections if each) + "\n"


def _accumulate(model: str, name: str, text: LoopText) -> list[str]:
    return [
        f"def accumulate({model}, micro_batches):",
        f"    # {name}, lines {text.first} to {text.last}, as found; the rest stands for what is above it there.",
        *(f"    {line}" if line else "" for line in [*text.before, *text.lines]),
    ]


def _frame(name: str, parsed: bool) -> str:
    why = "No loop over batches that calls backward() was found in it" if parsed else "It could not be parsed"
    return f'''\
"""A probe of {name} for `firstfault prove`. {why}: fill in the functions."""

import torch


def build():
    """The model, small; called anew for each leg."""
    raise NotImplementedError("{_FILL}: return the model")


def batch(n):
    """One batch of n samples of unequal length, as the loop gets it."""
    raise NotImplementedError("{_FILL}: return the batch")


def accumulate(model, micro_batches):
    """Your own loop over the micro-batches of one window, up to the gradients."""
    for batch in micro_batches:
        loss = ...  # {_FILL}: your loss, divided as your script divides it
        loss.backward()


def objective(model, batch):
    """What you mean to minimise: the sum of the losses of all targets, and their number."""
    raise NotImplementedError("{_FILL}: return loss_sum, targets")
'''
