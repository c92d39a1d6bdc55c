"""The Trainers of a script that leave the loss to the library: which model each of them trains, in which release."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from firstfault.lint.bindings import keyword
from firstfault.lint.hf_trainer import Steps, accumulation, concrete_head, head_name, lineage, model_of, settles_scale
from firstfault.lint.hf_trainer import trainer_calls as calls_of_trainers
from firstfault.lint.objects import Instance
from firstfault.lint.rule import Related
from firstfault.lint.script import Script, per_script
from firstfault.lint.versions import Release, release
from firstfault.lint.workspace import Workspace


class StockLoss(NamedTuple):
    call: ast.Call
    model: Instance
    head: str | None  # the model's class in transformers; None for one of the workspace, or where it is not known
    named: bool  # the script names that class itself, not an automatic one
    steps: Steps
    where: Release | None

    def related(self, script: Script) -> tuple[Related, ...]:
        found = []
        if self.steps.node is not None:
            found.append(Related(script.path, script.line(self.steps.node), "the accumulation steps"))
        if self.where is not None:
            found.append(Related(self.where.file, self.where.line, f"transformers {self.where.text}"))
        return tuple(found)

    @property
    def times(self) -> str:
        value = self.steps.value
        return f"{value.value:g}" if value is not None and self.steps.is_many else "`gradient_accumulation_steps`"


def stock_losses(script: Script, workspace: Workspace) -> Iterator[StockLoss]:
    """Where neither a flag, nor a method, nor a function of the user's has a say in the loss."""
    steps = accumulation(script)
    if steps.is_one or not _speaks_of_trainers(script):
        return
    for call, made, home in calls_of_trainers(script, workspace):
        if _has_own_loss(call, made, home, workspace) or settles_scale(home, made, workspace):
            continue
        model = model_of(script, call, workspace) if not settles_scale(script, None, workspace) else None
        if model is not None:
            head = concrete_head(script, model)
            where = release("transformers", script, workspace)
            yield StockLoss(call, model, head, head is not None and head == head_name(model), steps, where)


@per_script
def _speaks_of_trainers(script: Script) -> bool:
    return "Trainer" in script.source


def _has_own_loss(call: ast.Call, made: ast.ClassDef | None, home: Script, workspace: Workspace) -> bool:
    if keyword(call, "compute_loss_func") is not None or any(each.arg is None for each in call.keywords):
        return True
    family = lineage(home, made, workspace) if made is not None else []
    methods = {each.name for _, owner in family for each in owner.body if isinstance(each, ast.FunctionDef)}
    return bool(methods & {"compute_loss", "training_step"})
