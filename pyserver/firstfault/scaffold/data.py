"""The samples of a probe: the script's own loader, asked for one batch of n."""

import ast

from firstfault.lint.bindings import last_binding
from firstfault.lint.script import Script, last_name
from firstfault.lint.training_loop import TrainingLoop
from firstfault.scaffold.loop import loop_targets, looped_over
from firstfault.scaffold.needed import Needed

_NOT_KEPT = {"batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "persistent_workers", "drop_last",
             "pin_memory", "prefetch_factor", "worker_init_fn"}  # fmt: skip


def batch_lines(script: Script, loop: TrainingLoop, needed: Needed) -> list[str]:
    loader = _loader(script, loop)
    if loader is None or not loader.args:
        return [
            "def batch(n):",
            "    # One batch of n samples of unequal length, of the shape that the loop gets.",
            '    raise NotImplementedError("FILL IN: return the batch")',
        ]
    kept = [each for each in loader.keywords if each.arg and each.arg not in _NOT_KEPT]
    values = [loader.args[0], *(each.value for each in kept)]
    before = needed.by([loader.func, *values], loader, set())
    options = "".join(f", {each.arg}={script.text(each.value)}" for each in kept)
    made = f"{script.text(loader.func)}({script.text(loader.args[0])}, batch_size=n{options})"
    return ["def batch(n):", *(f"    {line}" for line in before), f"    return next(iter({made}))"]


def objective_lines(loop: TrainingLoop) -> list[str]:
    names = loop_targets(loop) or "batch"
    unpacked = [f"#     {names} = batch"] if names != "batch" else []
    return [
        "# Optional, and worth it: what you mean to minimise. Without it a fault of the whole batch is not seen.",
        "#",
        "# def objective(model, batch):",
        *unpacked,
        "#     return ...  # FILL IN: the sum of the losses of all targets, and the number of targets",
    ]


def _loader(script: Script, loop: TrainingLoop) -> ast.Call | None:
    """The call that makes the loader, where the text shows it."""
    over = looped_over(loop)
    if isinstance(over, ast.Name):
        binding = last_binding(script, over.id, loop.node)
        over = binding.value if binding and binding.item is None else None
    is_loader = isinstance(over, ast.Call) and last_name(over.func) == "DataLoader"
    return over if is_loader and isinstance(over, ast.Call) else None
