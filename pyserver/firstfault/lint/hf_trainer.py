"""How a script uses transformers' Trainer: the classes that derive from it, what they override, what they are given."""

import ast
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from firstfault.lint import trainers
from firstfault.lint.bindings import Number, keyword, last_binding, number
from firstfault.lint.calls import last_name
from firstfault.lint.objects import Instance, instance
from firstfault.lint.script import Script, dotted, per_script
from firstfault.lint.versions import Release
from firstfault.lint.workspace import Workspace
from firstfault.text import Span

_TRAINER = re.compile(r"transformers\.(?:trainer\.|trainer_seq2seq\.)?(?:Seq2Seq)?Trainer")
_ARGUMENTS = re.compile(r"(?:Seq2Seq)?TrainingArguments$")
_SETTLED = ("loss_is_scaled_for_ga", "model_accepts_loss_kwargs", "accepts_loss_kwargs")
_STEPS = "gradient_accumulation_steps"
_OPTIONS = re.compile(r"HfArgumentParser|parse_args|from_yaml|fire\.Fire|hydra|OmegaConf|tyro|click|typer")
_CAUSAL = re.compile(r"AutoModelForCausalLM|\w+ForCausalLM|\w+LMHeadModel")
_AUTO = re.compile(r"AutoModelFor\w+")
_LOADERS = ("from_pretrained", "from_config", "_from_config")
_HOPS = 4
_NEIGHBOURS = 40
ITEMS = "num_items_in_batch"
FIRST_ITEMS = (4, 46, 0)  # the release since which the Trainer counts the items of the whole window


@dataclass(frozen=True, slots=True)
class Override:
    """A method of a class that derives from the Trainer, written in this script."""

    owner: ast.ClassDef
    method: ast.FunctionDef


@dataclass(frozen=True, slots=True)
class Steps:
    """The accumulation setting. ``value`` is None where the text names it and does not tell the number."""

    node: ast.AST | None
    value: Number | None

    @property
    def is_one(self) -> bool:
        """1, and nothing outside the text can change it."""
        return self.value is not None and self.value.value == 1 and self.value.origin != "default"

    @property
    def is_many(self) -> bool:
        return self.value is not None and self.value.value > 1


def items_of(function: ast.FunctionDef) -> str | None:
    """How the body of a function names the number of items; None where it does not take it."""
    arguments = function.args
    if any(each.arg == ITEMS for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)):
        return ITEMS
    return f'{arguments.kwarg.arg}.get("{ITEMS}")' if arguments.kwarg is not None else None


def head_span(script: Script, function: ast.FunctionDef) -> Span:
    """``def compute_loss``, without the parameters and the body."""
    start = script.span(function).start
    at = script.line_text(start.line).find(function.name, start.column - 1)
    return Span(start, start._replace(column=at + len(function.name) + 1))


def overrides(script: Script, name: str, workspace: Workspace) -> Iterator[Override]:
    """The methods of this name in the classes of a script that derive from the Trainer."""
    for owner in script.nodes(ast.ClassDef):
        method = _method(owner, name)
        if method is not None and derives(script, owner, workspace):
            yield Override(owner, method)


def derives(script: Script, owner: ast.ClassDef, workspace: Workspace, hops: int = _HOPS) -> bool:
    """Whether a class is the Trainer's, directly or over classes of the workspace."""
    for base in owner.bases:
        if _TRAINER.fullmatch(script.qualified(base)):
            return True
        defined = workspace.definition(dotted(base), script) if dotted(base) and hops else None
        above = defined[1] if defined and isinstance(defined[1], ast.ClassDef) and defined[1] is not owner else None
        if defined and above is not None and derives(defined[0], above, workspace, hops - 1):
            return True
    return False


def lineage(script: Script, owner: ast.ClassDef, workspace: Workspace) -> list[tuple[Script, ast.ClassDef]]:
    """A class and those of the workspace that it derives from."""
    found = [(script, owner)]
    for home, each in found:
        for base in each.bases:
            defined = workspace.definition(dotted(base), home) if dotted(base) else None
            if defined and isinstance(defined[1], ast.ClassDef) and all(defined[1] is not known for _, known in found):
                found.append((defined[0], defined[1]))
    return found


def settles_scale(script: Script, owner: ast.ClassDef | None, workspace: Workspace) -> bool:
    """Somebody decides by hand who divides: a flag is set, or a class of the workspace runs the step in its own way."""
    family = lineage(script, owner, workspace) if owner is not None else []
    texts = {script.source, *(home.source for home, _ in family)}
    if any(word in text for word in _SETTLED for text in texts):
        return True
    return any(_method(each, name) for _, each in family for name in ("training_step", "get_batch_samples"))


def trainer_calls(script: Script, workspace: Workspace) -> Iterator[tuple[ast.Call, ast.ClassDef | None, Script]]:
    """The calls that make a Trainer, with the class of the workspace that is called, and where it stands."""
    for call in script.nodes(ast.Call):
        if _TRAINER.fullmatch(script.qualified(call.func)):
            yield call, None, script
        elif last_name(call.func).endswith("Trainer"):
            defined = workspace.definition(dotted(call.func), script)
            if defined and isinstance(defined[1], ast.ClassDef) and derives(*defined, workspace):  # type: ignore[arg-type]
                yield call, defined[1], defined[0]


@per_script
def accumulation(script: Script) -> Steps:
    """What the script gives as ``gradient_accumulation_steps``."""
    made = [call for call in script.nodes(ast.Call) if _ARGUMENTS.search(last_name(call.func))]
    for call in made:
        given = keyword(call, _STEPS)
        if given is not None:
            return Steps(given, number(script, given))
    for assign in script.nodes(ast.Assign):
        if isinstance(assign.targets[0], ast.Attribute) and assign.targets[0].attr == _STEPS:
            return Steps(assign.value, number(script, assign.value))
    for dictionary in script.nodes(ast.Dict):
        for key, value in zip(dictionary.keys, dictionary.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == _STEPS:
                return Steps(value, number(script, value))
    closed = made and not any(word.arg is None for call in made for word in call.keywords)
    if closed and not any(_STEPS in each for each in (script.source,)) and not _OPTIONS.search(script.source):
        return Steps(None, Number(1, "constant", made[0]))  # the library's own default
    return Steps(None, None)


# ------------------------------------------------------------------------------------------------ the model


def model_of(script: Script, call: ast.Call, workspace: Workspace) -> Instance | None:
    """What a Trainer is given as its model."""
    given = keyword(call, "model") or (call.args[0] if call.args else None)
    return instance(script, given, workspace) if given is not None else None


@dataclass(frozen=True, slots=True)
class Use:
    """Where a class is made a Trainer: the script, its model as far as the text tells, its accumulation."""

    script: Script
    model: Instance | None
    steps: Steps


def use_of(script: Script, owner: ast.ClassDef, workspace: Workspace) -> Use:
    """The first call of a class, in its own script or in one beside it that imports it."""
    for call, made, home in trainer_calls(script, workspace):
        family = lineage(home, made, workspace) if made is not None else []
        if any(each is owner for _, each in family):
            return Use(script, model_of(script, call, workspace), accumulation(script))
    for each in _neighbours(script, owner.name, workspace):
        for call in each.nodes(ast.Call):
            if dotted(call.func) == owner.name:
                return Use(each, model_of(each, call, workspace), accumulation(each))
    return Use(script, None, accumulation(script))


def _neighbours(script: Script, name: str, workspace: Workspace) -> Iterator[Script]:
    """The scripts of the same folder that import a name from this one."""
    module = os.path.splitext(os.path.basename(script.path))[0]
    folder = os.path.abspath(script.folder or ".")
    paths = {each for each in workspace.overlay if os.path.dirname(each) == folder}
    with suppress(OSError):
        paths |= {os.path.join(folder, each) for each in os.listdir(folder)}
    scripts = sorted(each for each in paths if each.endswith(".py") and each != os.path.abspath(script.path))
    for path in scripts[:_NEIGHBOURS]:
        found = workspace.script(path)
        if found is not None and f".{found.imports.get(name, '')}".endswith(f".{module}.{name}"):
            yield found


def head_name(model: Instance) -> str | None:
    """``BertForMaskedLM`` of ``transformers.BertForMaskedLM.from_pretrained``, an automatic class as it is named."""
    parts = model.name.split(".")
    if parts[0] != "transformers":
        return None
    parts = parts[:-1] if parts[-1] in _LOADERS else parts
    return parts[-1]


def concrete_head(script: Script, model: Instance) -> str | None:
    """The class behind an automatic one, where the name of the checkpoint is written and begins with its kind."""
    name = head_name(model)
    if name is None or not _AUTO.fullmatch(name):
        return name
    kinds = {trainers.kind_of_checkpoint(each, name) for each in _checkpoints(script, model.call)}
    kind = kinds.pop() if len(kinds) == 1 else None
    return trainers.head_of(name, kind) if kind else None


def _checkpoints(script: Script, call: ast.Call) -> list[str]:
    given = call.args[0] if call.args else keyword(call, "pretrained_model_name_or_path")
    for _ in range(3):
        if isinstance(given, ast.Constant):
            return [given.value] if isinstance(given.value, str) else []
        binding = last_binding(script, dotted(given), call) if given is not None and dotted(given) else None
        if binding is None or binding.kind not in ("assign", "parameter"):
            break
        given = binding.value
    return []


def is_causal(model: Instance) -> bool:
    name = head_name(model)
    return bool(name and _CAUSAL.fullmatch(name))


def takes_items(script: Script, model: Instance | None, where: Release | None) -> bool | None:
    """Whether the model's forward takes keywords of the loss, so that the Trainer leaves its own division out."""
    if where is not None and where.low >= FIRST_ITEMS and where.high is not None and where.high < (4, 48, 0):
        return True  # there it is left out whatever the model takes
    if model is None:
        return None
    if model.definition is not None:
        return _forward_takes_rest(model.definition)
    if is_causal(model):
        return True
    name = concrete_head(script, model)
    mark = trainers.of_head(name, where or trainers.newest()) if name else None
    return None if mark is None else mark in (trainers.RIGHT, trainers.TIMES_STEPS)


def _forward_takes_rest(owner: ast.ClassDef) -> bool | None:
    forward = _method(owner, "forward")
    return None if forward is None else forward.args.kwarg is not None


def _method(owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == name), None)
