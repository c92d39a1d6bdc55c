"""What a script says about the mean that gradients are given over the ranks."""

import ast
import re
from typing import NamedTuple

from firstfault.lint.bindings import keyword
from firstfault.lint.calls import last_name
from firstfault.lint.gradient_sync import data_parallel
from firstfault.lint.script import Script, dotted

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


def averaging_wrapper(script: Script) -> ast.Call | None:
    """The call that makes gradients a mean over the ranks: DDP, FSDP; None where the divisor may be another."""
    if _OWN_DIVISOR.search(script.source):
        return None
    found = data_parallel(script)
    if found is not None:
        return found
    for call in script.nodes(ast.Call):
        name = script.qualified(call.func)
        if name.startswith("torch.") and name.rpartition(".")[2] in _SHARDED:
            return call
    return None


def summed_over_ranks(script: Script) -> list[Shared]:
    """The names whose values an ``all_reduce`` sums over all ranks, in place."""
    found = []
    for call in script.nodes(ast.Call):
        if not script.qualified(call.func).startswith("torch.distributed") or last_name(call.func) != "all_reduce":
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
