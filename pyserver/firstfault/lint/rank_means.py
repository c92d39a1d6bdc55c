"""What a script says about the mean that gradients are given over the ranks."""

import ast
import re
from typing import NamedTuple

from firstfault.lint.bindings import keyword
from firstfault.lint.calls import last_name
from firstfault.lint.gradient_sync import data_parallel
from firstfault.lint.objects import argument
from firstfault.lint.script import Script, dotted, per_script
from firstfault.lint.training_loop import TrainingLoop, called_function

_OWN_DIVISOR = re.compile(
    r"register_comm_hook|set_gradient_divide_factor|gradient_predivide|reduce_scatter_divide_factor|postdivide"
)
_RANKS = re.compile(r"world_?size|num_processes|n_?procs|num_replicas|n_ranks|num_gpus|n_gpus?$|^world$", re.IGNORECASE)
_SHARDED = {"FullyShardedDataParallel", "fully_shard"}


class Shared(NamedTuple):
    """``dist.all_reduce(tokens)``."""

    call: ast.Call
    name: str
    module: str  # ``dist``


@per_script
def averaging_wrapper(script: Script) -> ast.Call | None:
    """The call that makes gradients a mean over the ranks: DDP, FSDP; None where the divisor may be another."""
    if _OWN_DIVISOR.search(script.source):
        return None
    found = data_parallel(script)
    if found is not None:
        return found
    for call in script.nodes(ast.Call) if any(each in script.source for each in _SHARDED) else ():
        name = script.qualified(call.func)
        if name.startswith("torch.") and name.rpartition(".")[2] in _SHARDED:
            return call
    return None


def is_trained(script: Script, wrapper: ast.Call, loop: TrainingLoop) -> bool:
    """The loop's code calls something by the name that the wrapped model has: not two models of one file."""
    names = _names_of(script, wrapper)
    places = [loop.node, *(function for each in loop.backwards if (function := script.function(each.node)))]
    called = (each.func for place in places for each in script.walk(place) if isinstance(each, ast.Call))
    return bool(names) and any(last_name(each) in names for each in called)


def _names_of(script: Script, wrapper: ast.Call) -> set[str]:
    """``ddp`` of ``ddp = DDP(model)``, and what it is called in functions that it is handed to."""
    statement = script.statement(wrapper)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = {last_name(part) for each in targets for part in ast.walk(each) if isinstance(part, ast.expr)} - {""}
    if last_name(wrapper.func) == "fully_shard" and wrapper.args:  # in place
        names.add(last_name(wrapper.args[0]))
    for call in script.nodes(ast.Call):
        function = called_function(script, call)
        for parameter in _parameter_names(function) if function is not None else ():
            given = argument(call, function, parameter) if function is not None else None
            if given is not None and last_name(given) in names:
                names.add(parameter)
    return names - {"self"}


def _parameter_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


def summed_over_ranks(script: Script) -> list[Shared]:
    """The names whose values an ``all_reduce`` sums over all ranks, in place."""
    found = []
    for call in script.nodes(ast.Call):
        if last_name(call.func) != "all_reduce" or not script.qualified(call.func).startswith("torch.distributed"):
            continue
        operation = keyword(call, "op") or (call.args[1] if len(call.args) > 1 else None)
        plain = operation is None or last_name(operation) == "SUM"
        name = dotted(call.args[0]) if call.args and isinstance(call.func, ast.Attribute) else ""
        if plain and name and keyword(call, "group") is None and isinstance(call.func, ast.Attribute):
            found.append(Shared(call, name, dotted(call.func.value)))
    return found


def counts_ranks(script: Script, root: ast.AST) -> bool:
    """A number of ranks takes part in a computation somewhere below a node."""
    return any(
        _RANKS.search(last_name(each)) or (isinstance(each, ast.Call) and _RANKS.search(last_name(each.func)))
        for each in script.walk(root)
        if isinstance(each, (ast.Name, ast.Attribute, ast.Call))
    )
