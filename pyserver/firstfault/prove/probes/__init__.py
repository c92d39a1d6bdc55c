"""Probes: what is watched inside the user's process. Looking is finding: a module with ``install`` is a probe.

    def install(record: Record) -> Callable[[], None]:
        undo = wrap(torch.nn.utils, "clip_grad_norm_", make)    # probes/patching.py
        record.on("accumulated", add_my_numbers)                 # the moments stand in prove/record.py
        return undo                                              # the monitor takes its probes off again

Within: ``record.window`` is the open window, ``record.window.micro_batches[-1]`` the micro-batch of the backward that
runs or ran last, ``record.event("clip", ...)`` puts a call at its place in the order, ``record.scale`` is the gradient
scaler's factor in this backward, ``record.optimizers`` those seen so far, ``record.not_measured("gradient", why)`` says
what cannot be told. Add numbers under your own name: ``micro_batch["gradient"] = {...}``,
``window.values["batchnorm"]``. The losses in ``micro_batch["losses"]`` are described in ``probes/token_weights.py``;
they are there once the gradient has arrived, so in ``accumulated`` they are complete.

``install_all`` puts on ``boundaries`` first; the others follow by name. A probe that cannot be installed is noted and
left out. torch >= 2.1, no private API without a guard, Python >= 3.9. Modules without ``install`` are plain arithmetic.
Verdicts on what a probe sent are in ``prove/judges/`` (server side, no torch).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable

from firstfault.prove.record import Record

Undo = Callable[[], None]


def install_all(record: Record, names: Iterable[str] | None = None) -> Undo:
    """Put on the named probes, or all; the answer takes them off, the last one first."""
    wanted = [module.name for module in pkgutil.iter_modules(__path__)] if names is None else list(names)
    undone: list[Undo] = []
    for name in sorted(wanted, key=lambda each: (each != "boundaries", each)):
        try:
            module = importlib.import_module(f"{__name__}.{name}")
            if hasattr(module, "install"):
                undone.append(module.install(record))
        except Exception as error:
            record.not_measured(name, f"the probe could not be installed ({type(error).__name__}: {error})"[:300])

    def undo() -> None:
        while undone:
            undone.pop()()

    return undo
