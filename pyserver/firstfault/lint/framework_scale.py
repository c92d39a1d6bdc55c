"""By what a framework divides the loss when it runs backward, where the script or its configuration tells.

accelerate, DeepSpeed's engine, mmengine's wrapper and Lightning's automatic optimization divide by the number of steps
that they were given; Fabric, manual optimization and an Accelerator without that number divide by nothing.
"""

import ast
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from firstfault.lint.bindings import Number, keyword, number
from firstfault.lint.calls import Backward, last_name
from firstfault.lint.script import Script, dotted, per_script
from firstfault.lint.window import Window, accelerator_steps, framework_steps
from firstfault.lint.workspace import Workspace

_NAMES = {"accelerator": "accelerate", "engine": "DeepSpeed", "mmengine": "mmengine", "lightning": "Lightning"}
_MICRO = "train_micro_batch_size_per_gpu"
_LONGEST_OPTION = 40  # characters of a string that is a name or an option rather than a sentence
_LARGEST = 200_000  # characters of a configuration


class Divider(NamedTuple):
    """Who divides, and by what."""

    framework: str
    window: Window  # its size as the framework was given it
    file: str  # where that is written
    line: int


def divider(script: Script, backward: Backward, workspace: Workspace) -> Divider | None:
    """None where nobody divides, or by 1, or where the text does not tell."""
    framework = _NAMES.get(backward.receiver)
    if framework is None or _keeps_scale(backward):
        return None
    size = accelerator_steps(script) if framework == "accelerate" else framework_steps(script)
    if framework == "accelerate" and knows_deepspeed(script):
        return None  # under DeepSpeed accelerate leaves the division to the engine
    if size is not None:
        window = Window("framework", size, script.span(size), script.text(size), size, number(script, size))
        return None if window.is_literal_one else Divider(framework, window, script.path, script.line(size))
    return _of_config(script, backward, workspace) if framework == "DeepSpeed" else None


@per_script
def knows_deepspeed(script: Script) -> bool:
    """The code itself names DeepSpeed: an import, a name, an option. A docstring that mentions it says nothing."""
    if "deepspeed" not in script.source.lower():
        return False
    words = [*script.imports.values(), *(each.id for each in script.nodes(ast.Name))]
    words += [each.attr for each in script.nodes(ast.Attribute)] + [
        each.arg or "" for each in script.nodes(ast.keyword)
    ]
    strings = (each.value for each in script.nodes(ast.Constant) if isinstance(each.value, str))
    words += [each for each in strings if len(each) <= _LONGEST_OPTION and "\n" not in each]
    return any("deepspeed" in each.lower() for each in words)


def _keeps_scale(backward: Backward) -> bool:
    """``engine.backward(loss, scale_wrt_gas=False)``."""
    call = backward.node
    return isinstance(call, ast.Call) and keyword(call, "scale_wrt_gas") is not None


def _of_config(script: Script, backward: Backward, workspace: Workspace) -> Divider | None:
    """The number of steps in the one DeepSpeed configuration that belongs to a script."""
    if "deepspeed" not in {each.partition(".")[0] for each in script.imports.values()}:
        return None
    named = set(re.findall(r"[\w./-]+\.json", script.source))
    found = [each for each in _configs(script, workspace) if not named or any(each[0].endswith(n) for n in named)]
    if len(found) != 1 or found[0][1] <= 1:
        return None
    path, steps, line = found[0]
    node = backward.loss
    size = Number(steps, "default", node)
    return Divider("DeepSpeed", Window("framework", node, script.span(node), str(steps), None, size), path, line)


def written_divider(script: Script, backward: Backward, workspace: Workspace) -> Divider | None:
    """An engine that is handed in, and whose configuration a module of the project writes.

    DeepSpeed itself divides ``train_batch_size`` by the micro-batch's size and the number of ranks: what is left of
    ``batch_size * update_freq * world_size`` is the number of steps, and each backward of the engine is divided by it.
    """
    call = backward.node
    if backward.receiver not in ("unknown", "engine") or not isinstance(call, ast.Call) or _keeps_scale(backward):
        return None
    if not knows_deepspeed(script) or not _steps_beside(script, call):
        return None
    for home in (script, *workspace.siblings(script)):
        size = next(_steps_left(home), None)
        if size is not None:
            window = Window("framework", size, home.span(size), home.text(size), size, number(home, size))
            return None if window.is_literal_one else Divider("DeepSpeed", window, home.path, home.line(size))
    return None


def _steps_beside(script: Script, call: ast.Call) -> bool:
    """``model.step()`` in the same block: the engine counts by itself."""
    if not isinstance(call.func, ast.Attribute):
        return False
    owner = f"{dotted(call.func.value)}.step"
    block = script.block(script.statement(call))
    return any(
        isinstance(each, ast.Expr) and isinstance(each.value, ast.Call) and dotted(each.value.func) == owner
        for each in block
    )


def _steps_left(home: Script) -> Iterator[ast.expr]:
    """``args.update_freq`` of a dictionary with ``train_batch_size`` and ``train_micro_batch_size_per_gpu``."""
    for dictionary in home.nodes(ast.Dict) if _MICRO in home.source else ():
        keys = [each.value if isinstance(each, ast.Constant) else None for each in dictionary.keys]
        if "train_batch_size" in keys and _MICRO in keys:
            whole = dictionary.values[keys.index("train_batch_size")]
            micro = {ast.dump(each) for each in _factors(dictionary.values[keys.index(_MICRO)])}
            left = [each for each in _factors(whole) if ast.dump(each) not in micro]
            named = [each for each in left if isinstance(each, (ast.Name, ast.Attribute)) and not _is_ranks(each)]
            if len(named) == 1 and all(each is named[0] or _is_ranks(each) for each in left):
                yield named[0]


def _factors(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        yield from _factors(node.left)
        yield from _factors(node.right)
    else:
        yield node


def _is_ranks(node: ast.expr) -> bool:
    return "world" in last_name(node.func if isinstance(node, ast.Call) else node).lower()


def _configs(script: Script, workspace: Workspace) -> list[tuple[str, int, int]]:
    """Path, number of steps and its line of each DeepSpeed configuration in the script's folder."""
    folder = os.path.abspath(script.folder or ".")
    paths = {each for each in workspace.overlay if os.path.dirname(each) == folder}
    with suppress(OSError):
        paths |= {os.path.join(folder, each) for each in os.listdir(folder)}
    found = []
    for path in sorted(each for each in paths if each.endswith(".json")):
        text = workspace.overlay.get(path) or _read(path)
        steps = _steps(text)
        if steps is not None:
            line = next(n for n, each in enumerate(text.split("\n"), 1) if "gradient_accumulation_steps" in each)
            found.append((path, steps, line))
    return found


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(_LARGEST + 1)
    except OSError:
        return ""
    return text if len(text) <= _LARGEST else ""


def _steps(text: str) -> int | None:
    """``auto`` is filled in by somebody else and tells nothing."""
    if "gradient_accumulation_steps" not in text:
        return None
    try:
        config = json.loads(text)
    except ValueError:
        return None
    known = isinstance(config, dict) and any(each.startswith(("train_", "zero_", "fp16", "bf16")) for each in config)
    steps = config.get("gradient_accumulation_steps") if known else None
    return steps if isinstance(steps, int) else None


def rewritten(script: Script, backward: Backward) -> list[ast.BinOp | ast.AugAssign]:
    """``losses["total"] = losses["total"] / N`` above a backward of ``losses["total"]``: not a name, so no binding."""
    if not isinstance(backward.loss, (ast.Subscript, ast.Attribute)):
        return []
    wanted, function = ast.unparse(backward.loss), script.function(backward.node)
    found: list[ast.BinOp | ast.AugAssign] = []
    for node in script.nodes(ast.Assign):
        value = node.value
        divides = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div)
        if divides and {ast.unparse(value.left), ast.unparse(node.targets[0])} == {wanted}:  # type: ignore[attr-defined]
            found.append(value)  # type: ignore[arg-type]
    found += [
        each
        for each in script.nodes(ast.AugAssign)
        if isinstance(each.op, ast.Div) and ast.unparse(each.target) == wanted
    ]
    line = script.line(backward.node)
    return [each for each in found if script.function(each) is function and script.line(each) < line]


def steps_of_owner(operand: ast.expr) -> bool:
    """``accelerator.gradient_accumulation_steps``, ``self.trainer.accumulate_grad_batches``: the framework's own."""
    return isinstance(operand, ast.Attribute) and last_name(operand) in (
        "gradient_accumulation_steps",
        "accumulate_grad_batches",
    )
