"""The accumulation loop as the script has it, over micro-batches in the place of its loader."""

import ast
import textwrap
from typing import NamedTuple

from firstfault.lint.script import Script, dotted
from firstfault.lint.training_loop import TrainingLoop
from firstfault.scaffold.needed import Needed

_PASSED_ON = {"enumerate", "tqdm", "track", "trange", "iter", "cycle"}  # loops over what they are given
_SIZE = "len(micro_batches)"


class LoopText(NamedTuple):
    before: list[str]  # values that the loop needs
    lines: list[str]
    first: int  # lines of the script
    last: int


def loop_text(script: Script, loop: TrainingLoop, model: str, needed: Needed) -> LoopText:
    statements = _around(script, loop)
    given = {model, "micro_batches", *_size_name(loop)}
    over = looped_over(loop)
    left_out = {id(node) for node in script.walk(over)} if over is not None else set()
    roots = [each for statement in statements for each in _without(script, statement, left_out)]
    stand_ins = _stand_ins(script, loop, model)
    values = needed.by(roots, loop.node, given | stand_ins.keys())
    size = [f"{name} = {_SIZE}" for name in _size_name(loop)]
    return LoopText(
        [*size, *stand_ins.values(), *values, *_prepared(script, loop, list(stand_ins)), *_fetched_elsewhere(over)],
        [line for each in statements for line in _text(script, each, loop, over)],
        script.line(statements[0]),
        max(each.end_lineno or each.lineno for each in statements),
    )


def looped_over(loop: TrainingLoop) -> ast.expr | None:
    """The loader, without the calls that only count or show it."""
    node = loop.node.iter if isinstance(loop.node, (ast.For, ast.AsyncFor)) else None
    while isinstance(node, ast.Call) and node.args and dotted(node.func).rpartition(".")[2] in _PASSED_ON:
        node = node.args[0]
    return node


def counts(over: ast.expr | None) -> bool:
    """A loop over numbers, which gets its batches inside."""
    return isinstance(over, ast.Call) and dotted(over.func) == "range"


def _fetched_elsewhere(over: ast.expr | None) -> list[str]:
    if not counts(over):
        return []
    return ["# FILL IN: the loop gets its data inside of it; let it take micro_batches[0], [1] and so on there."]


def loop_targets(loop: TrainingLoop) -> str:
    """How the loop names a batch: ``tokens, labels`` of ``for step, (tokens, labels) in enumerate(loader)``."""
    if not isinstance(loop.node, (ast.For, ast.AsyncFor)):
        return ""
    if counts(looped_over(loop)):
        return ""
    target = loop.node.target
    if _is_enumerated(loop) and isinstance(target, ast.Tuple) and len(target.elts) == 2:
        target = target.elts[1]
    return ast.unparse(target).strip("()")


def _is_enumerated(loop: TrainingLoop) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "enumerate" for each in ast.walk(loop.node.iter))  # type: ignore[union-attr]


def _around(script: Script, loop: TrainingLoop) -> list[ast.stmt]:
    """The loop, what clears or sets the mode right before it, and what flushes the last window behind it."""
    assert isinstance(loop.node, ast.stmt)
    block = script.block(loop.node)
    place = block.index(loop.node)
    first = place
    while first and _prepares(block[first - 1]):
        first -= 1
    behind = {id(script.statement(each.node)) for each in loop.actions if each.after_loop}
    last = max((at for at, each in enumerate(block) if _holds(script, each, behind)), default=place)
    return block[first : max(place, last) + 1]


def _prepares(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and dotted(call.func).rpartition(".")[2] in ("zero_grad", "train")


def _holds(script: Script, statement: ast.stmt, wanted: set[int]) -> bool:
    return any(id(each) in wanted for each in script.walk(statement))


def _without(script: Script, statement: ast.stmt, left_out: set[int]) -> list[ast.AST]:
    """The statement; of a loop its head and body without the loader, which micro-batches replace."""
    if not isinstance(statement, (ast.For, ast.AsyncFor)) or not left_out:
        return [statement]
    head = [each for each in script.walk(statement.iter) if isinstance(each, ast.Name) and id(each) not in left_out]
    return [statement.target, *head, *statement.body, *statement.orelse]


def _size_name(loop: TrainingLoop) -> list[str]:
    size = loop.window.size_node if loop.window else None
    return [size.id] if isinstance(size, ast.Name) else []


def _stand_ins(script: Script, loop: TrainingLoop, model: str) -> dict[str, str]:
    """An optimizer, a schedule and a scaler that do what those of the script do to gradients: nothing but step."""
    found: dict[str, str] = {}
    for verb, line in (
        ("step", "{} = torch.optim.SGD(" + model + ".parameters(), lr=0.1)"),
        ("zero_grad", "{} = torch.optim.SGD(" + model + ".parameters(), lr=0.1)"),
        ("schedule", "{} = torch.optim.lr_scheduler.LambdaLR({optimizer}, lambda step: 0.9**step)"),
        ("scaler_update", '{} = torch.amp.GradScaler("cpu", enabled=False)'),
    ):
        for action in loop.of(verb):  # type: ignore[arg-type]
            owner = action.node.func.value if isinstance(action.node.func, ast.Attribute) else None
            if action.helper is None and isinstance(owner, ast.Name) and owner.id not in (model, *found):
                is_scaler = verb == "step" and "scaler" in owner.id.lower()
                if not is_scaler:
                    optimizer = next(iter(found), "optimizer")
                    found[owner.id] = line.replace("{optimizer}", optimizer).replace("{}", owner.id)
    return found


def _prepared(script: Script, loop: TrainingLoop, names: list[str]) -> list[str]:
    """With accelerate only an optimizer that it prepared waits for the end of a window."""
    owners = {dotted(each.func).rpartition(".")[0] for each in script.nodes(ast.Call) if _is_call(each, "prepare")}
    in_loop = (each for each in script.walk(loop.node) if isinstance(each, ast.Call) and _is_call(each, "backward"))
    owner = next((dotted(each.func).rpartition(".")[0] for each in in_loop if each.args), "")
    return [f"{', '.join(names)} = {owner}.prepare({', '.join(names)})"] if names and owner in owners - {""} else []


def _is_call(node: ast.Call, name: str) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == name


def _text(script: Script, statement: ast.stmt, loop: TrainingLoop, over: ast.expr | None) -> list[str]:
    """The lines of a statement, with the loader and the size of the window replaced."""
    start = script.table.starts[script.line(statement) - 1]
    span = script.span(statement)
    text = script.source[start : script.table.offset(span.end)]
    edits = []
    for node in _replaced(script, statement, loop, over):
        place = script.span(node)
        new = _SIZE if node is not over else f"range({_SIZE})" if counts(over) else "micro_batches"
        edits.append((script.table.offset(place.start) - start, script.table.offset(place.end) - start, new))
    for begin, end, new in sorted(edits, reverse=True):
        text = text[:begin] + new + text[end:]
    return textwrap.dedent(text).splitlines()


def _replaced(script: Script, statement: ast.stmt, loop: TrainingLoop, over: ast.expr | None) -> list[ast.AST]:
    found: list[ast.AST] = []
    if over is not None and any(each is over for each in script.walk(statement)):
        found.append(over)
    size = loop.window.size_node if loop.window else None
    if size is None or isinstance(size, ast.Name):
        return found
    text, inside = (
        loop.window.size_text if loop.window else "",
        {id(each) for each in script.walk(over)} if over else set(),
    )
    divisors = {id(each.by) for each in loop.divisions}
    for node in script.walk(statement):
        same = isinstance(node, ast.expr) and id(node) not in inside and script.text(node) == text
        if same and (not isinstance(node, ast.Constant) or id(node) in divisors or node is size):
            found.append(node)
    return found
