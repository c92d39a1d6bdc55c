"""How the gradients of a window are divided by its tokens: plain, over ranks, under a scaler, under a framework."""

import ast
from typing import NamedTuple

from firstfault.lint.calls import last_name
from firstfault.lint.script import Script, dotted
from firstfault.lint.training_loop import TrainingLoop

_PARTITIONED = ("megatron", "colossalai", "horovod", "apex", "torch_xla")


class Names(NamedTuple):
    """Names that the script does not use yet."""

    window: str
    micro: str
    reference: str
    loss: str
    mean: str
    parameter: str
    group: str


class Rescale(NamedTuple):
    parameters: str  # what to walk over; "" means the groups of the optimizer
    optimizer: str
    shared: tuple[str, ...]  # statements that turn the count into tokens per rank; {window} is its name
    guard: str  # a condition of the framework, or ""
    reference: bool  # keep the back-propagated value near the mean: a scaler multiplies it

    def lines(self, names: Names, step: str, reset: bool) -> list[str]:
        ranks = [line.format(window=names.window, step=step) for line in self.shared]
        grad = f"{names.parameter}.grad"
        by = f"mul_({names.reference} / {names.window})" if self.reference else f"div_({names.window})"
        divide = [f"if {grad} is not None:", f"{step}{grad}.{by}"]
        if self.parameters:
            walk = [f"for {names.parameter} in {self.parameters}:", *(step + line for line in divide)]
        else:
            inner = [f'for {names.parameter} in {names.group}["params"]:', *(step + line for line in divide)]
            walk = [f"for {names.group} in {self.optimizer}.param_groups:", *(step + line for line in inner)]
        return [*ranks, *walk, *([f"{names.window} = 0"] if reset else [])]


def rescale(script: Script, loop: TrainingLoop) -> Rescale | None:
    """The way that fits a loop, or None where gradients cannot be rescaled before the step."""
    if _owns_gradients(script) or _is_data_parallel(script):
        return None
    optimizer = _optimizer(loop)
    if not optimizer:
        return None
    receiver = loop.backwards[0].receiver
    scaled = any(each.receiver == "scaler" for each in loop.backwards)
    parameters = _clipped_parameters(script, loop)
    if receiver == "accelerator":
        owner = _owner(loop)
        ranks = f"({owner}.num_processes * {owner}.gradient_accumulation_steps)"
        shared = f'{{window}} = {owner}.reduce({{window}}, reduction="sum") / {ranks}'
        return Rescale(parameters, optimizer, (shared,), f"if {owner}.sync_gradients:", False) if owner else None
    if receiver == "fabric":
        owner = _owner(loop)
        shared = f'{{window}} = {owner}.all_reduce({{window}}, reduce_op="sum") / {owner}.world_size'
        return Rescale(parameters, optimizer, (shared,), "", False) if owner else None
    shared_lines = _over_ranks(script)
    return Rescale(parameters, optimizer, shared_lines, "", scaled) if shared_lines is not None else None


def _owns_gradients(script: Script) -> bool:
    """A library partitions, copies or reduces the gradients in its own way before the step."""
    imported = any(each.partition(".")[0] in _PARTITIONED for each in script.imports.values())
    return imported or "deepspeed" in script.source.lower()  # also where it is only named as a strategy


def _optimizer(loop: TrainingLoop) -> str:
    """The one optimizer that the loop steps, as it is named there."""
    found = set()
    for step in loop.optimizer_steps:
        call = step.inner
        given = call.args[0] if call.args else call.func.value if isinstance(call.func, ast.Attribute) else None
        name = dotted(given)
        if step.helper is not None and not name.startswith("self."):
            name = _given_to_helper(step.node, step.helper, name)
        found.add(name)
    return found.pop() if len(found) == 1 else ""


def _given_to_helper(call: ast.Call, helper: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> str:
    """The optimizer that the loop hands to the function that steps it."""
    from firstfault.lint.objects import argument

    parameters = {each.arg for each in (*helper.args.posonlyargs, *helper.args.args, *helper.args.kwonlyargs)}
    given = argument(call, helper, name) if name in parameters else None
    return dotted(given) if given is not None else "" if name in parameters else name


def _clipped_parameters(script: Script, loop: TrainingLoop) -> str:
    """``model.parameters()`` where the loop clips them: then all of them must be right, stepped or not."""
    for each in loop.of("clip"):
        given = each.inner.args[0] if each.inner.args else None
        of_a_module = isinstance(given, ast.Call) and last_name(given.func) == "parameters" and not given.args
        if each.helper is None and of_a_module and dotted(given.func):  # type: ignore[union-attr]
            return script.text(given)  # type: ignore[arg-type]
    return ""


def _owner(loop: TrainingLoop) -> str:
    call = loop.backwards[0].node
    function = call.func if isinstance(call, ast.Call) else None
    return dotted(function.value) if isinstance(function, ast.Attribute) else ""


def _over_ranks(script: Script) -> tuple[str, ...] | None:
    """The count over all ranks where the script speaks of ranks; None where it cannot be said in its words."""
    if not any(_is_distributed(each) for each in script.imports.values()):
        attributes = (script.qualified(each) for each in script.nodes(ast.Attribute))
        if not any(_is_distributed(each) for each in attributes):
            return ()
    module = next((local for local, full in script.imports.items() if full == "torch.distributed"), "")
    if not module and script.imports.get("torch") == "torch":
        module = "torch.distributed"
    if not module:
        return None
    reduce = f"{{step}}{module}.all_reduce({{window}})"
    mean = f"{{step}}{{window}} = {{window}} / {module}.get_world_size()"
    return (f"if {module}.is_initialized():", reduce, mean)


def _is_distributed(name: str) -> bool:
    return name.startswith("torch.distributed") or name.rpartition(".")[2] in _WRAPPERS


_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "DDP", "FSDP", "fully_shard")


def _is_data_parallel(script: Script) -> bool:
    """Its loss is a mean over devices of means over tokens: the micro-batch itself is wrong already."""
    names = {script.qualified(call.func).rpartition(".")[2] for call in script.nodes(ast.Call)}
    return "DataParallel" in names


def free_names(script: Script) -> Names:
    used = {each.id for each in script.nodes(ast.Name)} | {each.arg for each in script.nodes(ast.arg)}
    used |= set(script.imports) | set(script.definitions)
    wanted = ("window_tokens", "micro_tokens", "reference_tokens", "token_loss", "mean_loss", "parameter", "group")
    return Names(*(_free(name, used) for name in wanted))


def _free(name: str, used: set[str]) -> str:
    while name in used:
        name += "_"
    return name
