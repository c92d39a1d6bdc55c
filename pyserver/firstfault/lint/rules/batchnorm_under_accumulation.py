"""BatchNorm normalises each micro-batch of an accumulation window alone.

## What it does

Finds BatchNorm layers that are trained under gradient accumulation: each micro-batch of the window goes through them
alone, before the optimizer steps for all of them together.

## Why it matters

In train mode BatchNorm divides by the mean and variance of the batch it is given. Under accumulation that is one
micro-batch, so the network computes another function than it would on the full batch, and the accumulated gradient is
another one, too. No error is raised and dividing the loss rightly does not help. Measured in float64 on the CPU (batch
of 32, ten seeds), the gradient was up to 40 % away from that of the full batch in a window of 2, 56 % in a window of 4
and 74 % in a window of 16; with GroupNorm, or with BatchNorm in eval mode, the difference was rounding (below 1e-15).

The running statistics, which evaluation uses, suffer as well: they are updated once in each micro-batch, so a
momentum of 0.1 acts like 0.34 in a window of 4 and like 0.57 in a window of 8, on noisier estimates. In PyTorch's
convention the effective momentum is too high, not too low.

SyncBatchNorm joins the ranks of one micro-batch. It never joins the micro-batches of a window.

## Example

```python
import torch
from torch import nn

model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()


def train(loader, accum_steps=4):
    model.train()
    for step, (images, labels) in enumerate(loader):
        loss = criterion(model(images), labels) / accum_steps
        loss.backward()
        if (step + 1) % accum_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

## Use instead

```python
import torch
from torch import nn

model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.GroupNorm(32, 64), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()


def train(loader, accum_steps=4):
    model.train()
    for step, (images, labels) in enumerate(loader):
        loss = criterion(model(images), labels) / accum_steps
        loss.backward()
        if (step + 1) % accum_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
```

A larger micro-batch with a smaller window makes the effect smaller, and so does SyncBatchNorm over several ranks;
neither removes it.

## Fix safety

- **Replace by GroupNorm** (unsafe): the accumulated gradient then equals that of the full batch. It is another model:
  pretrained weights lose their BatchNorm statistics, old checkpoints do not load, and the learning rate may need a new
  choice. The number of groups is the largest divisor of the channels up to 32 that leaves at least two channels in a
  group (eight after BatchNorm1d, whose input may have no positions to average over). Where the channels are known at
  run time only, it is the largest such power of two. Offered where every BatchNorm of the model is written out in the
  file.
- **Keep BatchNorm in eval mode** (unsafe): the layers use their stored statistics, so micro-batches no longer matter.
  Only for fine-tuning: a model trained from scratch never learns its statistics this way.
- **Correct the momentum** (partial): `1 - (1 - m) ** (1 / k)` makes k updates weigh what one did, which gives the
  running mean back the noise it has on the full batch. The gradients still differ, and the running variance is still
  that within micro-batches. The finding stays, as a hint.

## Limits

- A finding rests on the text. It is a warning where the window is known to be larger than 1: a constructor in the
  file or in a module of the workspace, a model family known to come with BatchNorm, also where a settings file beside
  the script names it. Where the window is 1 by default, or its size is not told, a family or another module is a hint.
- Silent where the model is frozen as far as the file tells (`.eval()` on the layers or the model, a freezing function,
  FrozenBatchNorm), where the layers are replaced, where a normalisation is chosen by a setting that the file does not
  decide, and for meta-learning, where a task is a batch of its own on purpose.
- A freeze that a later `model.train()` undoes is not noticed. Functional `batch_norm` and models that come from
  elsewhere under an unknown name are not seen.
- Whether the difference hurts a training is not said: with large micro-batches of well shuffled data it is small.

## References

- Wu and He, Group Normalization, arXiv 1803.08494 (batch of 2 on ImageNet: BatchNorm's error is 10.6 points higher)
- PyTorch issue 46516, BatchNorm and gradient accumulation
- PyTorch documentation, torch.nn.BatchNorm2d: momentum, and what the running statistics are used for
"""

import ast
import os
import re
from collections.abc import Iterable, Iterator

from firstfault.lint.bindings import keyword, number
from firstfault.lint.callers import callers, handed_number
from firstfault.lint.config_values import Setting, config_value, setting_name
from firstfault.lint.facts import stated_window
from firstfault.lint.norms import BatchNorm, batch_norms
from firstfault.lint.norms_families import families
from firstfault.lint.norms_fixes import freeze, group_norm, is_corrected, momentum
from firstfault.lint.norms_frozen import frozen_parts, is_frozen, is_held, set_aside
from firstfault.lint.norms_siblings import Sibling, configured_norm, sibling_norm
from firstfault.lint.norms_trained import Builders, builders, builders_of
from firstfault.lint.rule import Fix, Hit, Related, Severity, rule
from firstfault.lint.script import Script
from firstfault.lint.training_loop import TrainingLoop, training_loops
from firstfault.lint.window import Window
from firstfault.lint.workspace import Workspace

_META_LEARNING = ("learn2learn", "higher", "torchmeta")
_TASKS = re.compile(r"\b\w*(?:task|episode|meta)s?\w*\b", re.IGNORECASE)
_FRAMEWORK_WINDOWS = {"accumulate_grad_batches": "Trainer", "gradient_accumulation_steps": "TrainingArguments"}
_RANK = {"constructor": 0, "reference": 1, "conversion": 2, "parameter groups": 3, "family": 4}


@rule("BN501")
def check(script: Script, workspace: Workspace) -> Iterator[Hit]:
    """One finding for each place that shows BatchNorm, under the first window that trains it."""
    if _is_meta_learning(script):
        return
    seen: set[ast.AST] = set()
    for window, loop in _windows(script):
        hit = _hit(script, workspace, window, loop, seen)
        if hit is not None:
            yield hit


def _windows(script: Script) -> Iterator[tuple[Window, TrainingLoop | None]]:
    """Every window that can be larger than one, by the script's own loop or by a framework's trainer."""
    for loop in training_loops(script):
        if loop.window and _may_exceed_one(script, loop.window) and not _TASKS.search(loop.window.size_text):
            yield loop.window, loop
    for call in script.nodes(ast.Call):
        for name, owner in _FRAMEWORK_WINDOWS.items():
            size = keyword(call, name)
            if size is not None and script.qualified(call.func).endswith(owner):
                window = Window("framework", size, script.span(size), script.text(size), size, number(script, size))
                window = stated_window(script, window) or window
                if _may_exceed_one(script, window):
                    yield window, None


def _may_exceed_one(script: Script, window: Window) -> bool:
    if window.size is None:
        return True
    return window.size > 1 or (window.default_one and not _is_fixed_setting(script, window))


def _is_fixed_setting(script: Script, window: Window) -> bool:
    """``class Settings: window = 1`` is edited, not overridden; an option or a dataclass field is."""
    node = window.resolved.node if window.resolved else None
    assign = script.parent(node) if node is not None else None
    return isinstance(assign, ast.Assign) and isinstance(script.parent(assign), ast.ClassDef)


def _is_meta_learning(script: Script) -> bool:
    return any(each.partition(".")[0] in _META_LEARNING for each in script.imports.values())


def _hit(
    script: Script, workspace: Workspace, window: Window, loop: TrainingLoop | None, seen: set[ast.AST]
) -> Hit | None:
    if is_held(script, loop) if loop else is_frozen(script):
        return None
    model = builders(script, loop)
    layers = _layers(script, model)
    if not layers:
        configured = configured_norm(script, model, workspace)
        if configured is not None:
            return _configured_hit(script, workspace, window, loop, configured, seen)
        sibling = sibling_norm(script, model, workspace) if model else None
        if sibling is not None:
            return _sibling_hit(script, workspace, window, loop, sibling, seen)
        return _handed_hit(script, workspace, window, loop, seen) if loop and model is None else None
    first = min(layers, key=lambda each: _RANK[each.kind])
    if first.node in seen:
        return None
    seen.add(first.node)
    fixes = _fixes(script, layers, window, loop)
    severity = _severity(script, layers, window)
    return Hit(script.span(first.node), severity, _message(first, window), _related(script, window, loop), fixes)


def _layers(script: Script, model: Builders | None) -> list[BatchNorm]:
    """The BatchNorm of the model that is trained; of the whole file where its builders are not known."""
    held = [builders_of(script, part) for part in frozen_parts(script)]
    found = [
        each
        for each in (*batch_norms(script), *families(script))
        if each.kind in ("conversion", "parameter groups") or model is None or model.hold(each.node)
        if not set_aside(script, each) and not any(part.hold(each.node) for part in held)
    ]
    if model is not None and _is_all_here(script, model):
        return [each for each in found if each.kind not in ("conversion", "parameter groups")]
    return found


def _is_all_here(script: Script, model: Builders) -> bool:
    """Whether the model's class is in this file and takes nothing from elsewhere but torch.

    A conversion, or a test in a loop over its layers, then says nothing that the constructors do not say better.
    """
    owners = [each for each in model.expressions if isinstance(each, ast.ClassDef)]
    outside = [name for name in model.imported if not script.imports[name.partition(".")[0]].startswith("torch")]
    return bool(owners) and not outside


def _severity(script: Script, layers: list[BatchNorm], window: Window) -> Severity:
    """A constructor in the file is proof; a family's name counts where the window is open; else it is advice."""
    by_name = all(each.kind == "family" for each in layers)
    if window.default_one or (by_name and not _is_open(window)) or is_corrected(script, layers):
        return "hint"
    return "warning"


def _message(norm: BatchNorm, window: Window) -> str:
    effect = (
        f"each micro-batch of the {_window_text(window)} alone, so the accumulated gradient is not the full batch's."
    )
    if norm.kind == "conversion":
        return f"`{norm.name}` is converted to SyncBatchNorm, which joins ranks but still normalises by {effect}"
    if norm.kind == "parameter groups":
        return f"`{norm.name}` finds BatchNorm layers, which normalise by {effect}"
    if norm.kind == "family":
        return f"`{norm.name}` comes with BatchNorm layers, which normalise by {effect}"
    verb = "normalises" if norm.kind == "constructor" else "builds layers that normalise"
    return f"`{norm.name}` {verb} by {effect}"


def _window_text(window: Window) -> str:
    if not window.size_text or "\n" in window.size_text:
        return "accumulation window"
    return f"{window.size_text}-step window" if window.size_text.isdigit() else f"`{window.size_text}`-step window"


def _related(script: Script, window: Window, loop: TrainingLoop | None) -> tuple[Related, ...]:
    related = [Related(script.path, window.span.start.line, "the accumulation window")]
    for each in loop.backwards[:1] if loop else ():
        related.append(Related(script.path, script.line(each.node), "backward runs once in each micro-batch"))
    return tuple(related)


def _fixes(script: Script, layers: list[BatchNorm], window: Window, loop: TrainingLoop | None) -> tuple[Fix, ...]:
    offered: Iterable[Fix | None] = (
        group_norm(script, layers),
        freeze(script, loop) if loop else None,
        None if is_corrected(script, layers) else momentum(script, layers, window),
    )
    return tuple(each for each in offered if each is not None)


def _configured_hit(
    script: Script,
    workspace: Workspace,
    window: Window,
    loop: TrainingLoop | None,
    found: tuple[BatchNorm, Setting],
    seen: set[ast.AST],
) -> Hit | None:
    norm, setting = found
    if norm.node in seen:
        return None
    seen.add(norm.node)
    named = Related(setting.path, setting.line, f"`{setting.value}` is named here")
    fix = freeze(script, loop) if loop else None
    related = (named, *_related(script, window, loop))
    severity = _elsewhere(script, window, workspace)
    return Hit(script.span(norm.node), severity, _message(norm, window), related, (fix,) if fix else ())


def _elsewhere(script: Script, window: Window, workspace: Workspace) -> Severity:
    """The evidence is in another file: a warning where the window is open, a hint where it may be of one."""
    return "warning" if _is_open(window) or _is_opened_by_settings(script, window, workspace) else "hint"


def _is_open(window: Window) -> bool:
    return window.size is not None and window.size > 1 and not window.default_one


def _is_opened_by_settings(script: Script, window: Window, workspace: Workspace) -> bool:
    """``accum: 4`` in the settings file that the script reads."""
    name = setting_name(window.size_node) if window.size_node is not None else ""
    told = config_value(script, name, workspace) if name and not _is_open(window) else None
    return told is not None and told.value.isdigit() and int(told.value) > 1


def _handed_hit(
    script: Script, workspace: Workspace, window: Window, loop: TrainingLoop, seen: set[ast.AST]
) -> Hit | None:
    """The model is handed over by a file that calls this one: the finding stands at the window."""
    for home, call, taking in callers(script, loop.backwards[0].node, workspace):
        size = handed_number(home, call, taking, window.size_node, workspace)
        model = builders(home, None) if size != 1 and not is_frozen(home) else None
        found = _of_caller(home, model, workspace) if model else None
        if found is None or found.norm.node in seen:
            continue
        seen.add(found.norm.node)
        message = (
            f"The model that `{os.path.basename(home.path)}` hands over has BatchNorm (`{found.norm.name}`), which "
            f"normalises by each micro-batch of the {_window_text(window)} alone, so the accumulated gradient is not "
            "the full batch's."
        )
        here = Related(home.path, home.line(call), "this is called with the model")
        there = Related(found.script.path, found.script.line(found.norm.node), "its BatchNorm")
        open_ = size is not None and size > 1
        severity = "warning" if open_ else _elsewhere(script, window, workspace)
        return Hit(window.span, severity, message, (here, there, *_related(script, window, loop)[1:]), ())
    return None


def _of_caller(home: Script, model: Builders, workspace: Workspace) -> Sibling | None:
    """What a calling file's optimizers hold: its own layers, those that a setting names, those of its siblings."""
    layers = [each for each in _layers(home, model) if each.kind != "parameter groups"]
    if layers:
        first = min(layers, key=lambda each: _RANK[each.kind])
        return Sibling(home, first, first.node)
    configured = configured_norm(home, model, workspace)
    return Sibling(home, configured[0], configured[0].node) if configured else sibling_norm(home, model, workspace)


def _sibling_hit(
    script: Script,
    workspace: Workspace,
    window: Window,
    loop: TrainingLoop | None,
    sibling: Sibling,
    seen: set[ast.AST],
) -> Hit | None:
    """The finding stands at the window, which is what this file adds to the layers of the other one."""
    if sibling.norm.node in seen:
        return None
    seen.add(sibling.norm.node)
    built = sibling.norm
    message = (
        f"`{script.text(sibling.used)}` has BatchNorm (`{built.name}`), which normalises by each micro-batch of the "
        f"{_window_text(window)} alone, so the accumulated gradient is not the full batch's."
    )
    here = Related(script.path, script.line(sibling.used), "the model that the optimizer trains")
    there = [Related(sibling.script.path, sibling.script.line(built.node), "its BatchNorm")]
    if sibling.setting is not None:
        there.append(Related(sibling.setting.path, sibling.setting.line, f"`{sibling.setting.value}` is named here"))
    fix = freeze(script, loop) if loop else None
    related = (here, *there, *_related(script, window, loop)[1:])
    return Hit(window.span, _elsewhere(script, window, workspace), message, related, (fix,) if fix else ())
