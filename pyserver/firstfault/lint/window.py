"""How a script says that a window of micro-batches is full: the condition or the range, and the window's size."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from firstfault.lint.bindings import Number, bindings, keyword, last_binding, number
from firstfault.lint.calls import last_name, origin
from firstfault.lint.script import FUNCTIONS, Loop, Script, dotted
from firstfault.text import Span

Kind = Literal["modulo", "counter", "distance", "flag", "inner-range", "chunks", "accumulate-context", "framework"]


@dataclass(frozen=True, slots=True)
class Window:
    """What opens the optimizer's step. ``size`` is None where the text does not tell the number."""

    kind: Kind
    node: ast.expr  # the condition, the range, the accumulate() call
    span: Span
    size_text: str  # as the user wrote it; "" where no size is named
    size_node: ast.expr | None
    resolved: Number | None
    counter: ast.expr | None = None  # what a modulo or a comparison counts
    boundary: ast.If | None = None  # the `if` whose body (or, after `continue`, whose rest) runs once per window
    inverted: bool = False  # the boundary is the rest of the block after `if not full: continue`, or an `else`

    @property
    def size(self) -> int | None:
        return int(self.resolved.value) if self.resolved else None

    @property
    def is_literal_one(self) -> bool:
        """The text itself says 1, and nothing outside can change it."""
        return self.size == 1 and self.resolved is not None and self.resolved.origin != "default"

    @property
    def default_one(self) -> bool:
        """1 unless somebody overrides it: on the command line, in a configuration."""
        return self.size == 1 and self.resolved is not None and self.resolved.origin == "default"


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition that a statement runs under, within the loop."""

    test: ast.expr
    holder: ast.If
    positive: bool  # the statement runs where the test holds
    after_continue: bool = False


def guards(script: Script, node: ast.AST, loop: ast.AST) -> Iterator[Guard]:
    """The conditions between a node and its loop, innermost first, `if ...: continue` above it included."""
    below: ast.AST = node
    for above in script.ancestors(node):
        if isinstance(below, ast.stmt) and isinstance(above, (ast.If, *_BLOCKS)):
            yield from _continues(script, below)
        if isinstance(above, ast.If) and below is not above.test:
            yield Guard(above.test, above, below not in above.orelse)
        if above is loop or isinstance(above, FUNCTIONS):
            return
        below = above


_BLOCKS = (ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.FunctionDef, ast.AsyncFunctionDef)


def _continues(script: Script, statement: ast.stmt) -> Iterator[Guard]:
    block = script.block(statement)
    for above in block[: block.index(statement)] if statement in block else []:
        if isinstance(above, ast.If) and not above.orelse and isinstance(above.body[-1], (ast.Continue, ast.Return)):
            yield Guard(above.test, above, positive=False, after_continue=True)


def window_of_guard(script: Script, guard: Guard, loop: ast.AST) -> Window | None:
    """The window that a guarded step closes, or None where the condition is about something else."""
    found = _condition(script, guard.test, loop, guard.positive)
    if found is None:
        return None
    kind, node, size, counter, resolved_flag = found
    inverted = not guard.positive
    text = script.text(size) if size is not None else ""
    shown = guard.test if resolved_flag else node
    return Window(kind, shown, script.span(shown), text, size, number(script, size), counter, guard.holder, inverted)


_Found = tuple[Kind, ast.expr, ast.expr | None, ast.expr | None, bool]


def _condition(script: Script, test: ast.expr, loop: ast.AST, positive: bool, hops: int = 3) -> _Found | None:
    """Kind, node, size, counter of a condition that holds at the end of each window (or of its negation)."""
    if isinstance(test, ast.BoolOp):
        found = (_condition(script, each, loop, positive, hops) for each in test.values)
        return next((each for each in found if each), None)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        if isinstance(test.operand, ast.BinOp) and isinstance(test.operand.op, ast.Mod):
            return ("modulo", test, test.operand.right, test.operand.left, False) if positive else None
        return _condition(script, test.operand, loop, not positive, hops)
    if isinstance(test, ast.BinOp) and isinstance(test.op, ast.Mod):
        return None if positive else ("modulo", test, test.right, test.left, False)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _comparison(script, test, loop, positive)
    if isinstance(test, ast.Call):
        if last_name(test.func) in ("is_gradient_accumulation_boundary", "is_accumulation_step"):
            return ("framework", test, None, None, False)
        return _called_condition(script, test, loop, positive, hops)
    if isinstance(test, ast.Attribute) and test.attr == "sync_gradients":
        size = accelerator_steps(script)
        return ("accumulate-context", test, size, None, False) if positive else None
    name = dotted(test)
    binding = last_binding(script, name, test) if name and hops else None
    if binding is None or binding.kind != "assign" or binding.value is None:
        return None
    value = _condition(script, binding.value, loop, positive, hops - 1)
    return ("flag", value[1], value[2], value[3], True) if value else None


def _called_condition(script: Script, test: ast.Call, loop: ast.AST, positive: bool, hops: int) -> _Found | None:
    """``bool(...)``, and ``self.is_full(i)`` of the same file, which returns the condition."""
    if dotted(test.func) == "bool" and test.args:
        return _condition(script, test.args[0], loop, positive, hops)
    owner, name = script.class_of(test), dotted(test.func)
    function = script.definitions.get(f"{owner.name}.{name[5:]}" if owner and name.startswith("self.") else name)
    returned = [each.value for each in script.returns(function)] if isinstance(function, ast.FunctionDef) else []
    if len(returned) != 1 or returned[0] is None or not hops:
        return None
    found = _condition(script, returned[0], loop, positive, hops - 1)
    return ("flag", found[1], found[2], None, True) if found else None


def _comparison(script: Script, test: ast.Compare, loop: ast.AST, positive: bool) -> _Found | None:
    left, operator, right = test.left, test.ops[0], test.comparators[0]
    if isinstance(right, ast.BinOp) and isinstance(right.op, ast.Mod) and isinstance(left, ast.Constant):
        left, right = right, left  # 0 == i % N
    equal, unequal = isinstance(operator, ast.Eq), isinstance(operator, (ast.NotEq, ast.Gt, ast.Lt))
    if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod):
        if (equal and positive) or (unequal and not positive):
            return ("modulo", test, left.right, left.left, False)
        return None
    reaches = equal or isinstance(operator, ast.GtE)
    below = isinstance(operator, (ast.Lt, ast.NotEq))
    if not (reaches and positive) and not (below and not positive):
        return None
    size = _without_minus_one(right)
    if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Sub) and _is_reset(script, left.right, loop, test):
        return ("distance", test, size, left, False)
    counts = _counts_up(script, left, loop) and _is_reset(script, left, loop, test)
    return ("counter", test, size, left, False) if counts else None


def _without_minus_one(size: ast.expr) -> ast.expr:
    """``counted == N - 1`` counts from zero: the window is N."""
    minus = isinstance(size, ast.BinOp) and isinstance(size.op, ast.Sub)
    one = minus and isinstance(size.right, ast.Constant) and size.right.value == 1  # type: ignore[attr-defined]
    return size.left if one else size  # type: ignore[attr-defined]


def _counts_up(script: Script, counter: ast.expr, loop: ast.AST) -> bool:
    name = dotted(counter)
    return bool(name) and any(
        each.kind == "augmented" and _inside(script, each.node, loop) for each in bindings(script, name, counter)
    )


def _is_reset(script: Script, counter: ast.expr, loop: ast.AST, test: ast.expr) -> bool:
    """The counter is set anew at the end of a window, within the loop."""
    name = dotted(counter)
    return bool(name) and any(
        each.kind == "assign" and _inside(script, each.node, loop) and script.line(each.node) >= script.line(test)
        for each in bindings(script, name, counter)
    )


def _inside(script: Script, node: ast.AST, loop: ast.AST) -> bool:
    return loop in script.ancestors(node)


def window_of_range(script: Script, loop: Loop) -> Window | None:
    """The window of a loop that only accumulates, the step following it: ``for _ in range(N)``, chunks of a batch."""
    if isinstance(loop, ast.While):
        return None
    iterable = loop.iter
    while isinstance(iterable, ast.Call) and dotted(iterable.func).rpartition(".")[2] in _WRAPPERS and iterable.args:
        iterable = iterable.args[0]
    if isinstance(iterable, ast.Call) and dotted(iterable.func) == "range":
        size = _range_size(iterable)
        kind: Kind = "inner-range" if size is not None else "chunks"
        text = script.text(size) if size is not None else ""
        return Window(kind, iterable, script.span(iterable), text, size, number(script, size))
    chunks = _chunks(script, iterable)
    if chunks is None:
        return None
    size = _number_of_chunks(chunks)
    text = script.text(size) if size is not None else ""
    return Window("chunks", loop.iter, script.span(loop.iter), text, size, number(script, size))


_WRAPPERS = {"enumerate", "tqdm", "trange", "list", "zip", "reversed", "iter"}
_CHUNKING = re.compile(r"micro_?(?:batch|group|step|slice)", re.IGNORECASE)  # a function that is named for it
_CHUNKERS = {"chunk", "split", "tensor_split", "array_split", "chunk_batch", "split_batch"}


def _range_size(call: ast.Call) -> ast.expr | None:
    """N of ``range(N)`` and ``range(0, N)``; a range with a step walks over rows, not over micro-batches."""
    if len(call.args) == 1:
        return call.args[0]
    starts_at_zero = isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
    return call.args[1] if len(call.args) == 2 and starts_at_zero else None


def _chunks(script: Script, node: ast.expr, hops: int = 2) -> ast.Call | None:
    """The call that cuts a batch into micro-batches."""
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        return node if name in _CHUNKERS or _CHUNKING.search(name) else None
    binding = last_binding(script, dotted(node), node) if dotted(node) else None
    return _chunks(script, binding.value, hops - 1) if hops and binding and binding.value is not None else None


def _number_of_chunks(call: ast.Call) -> ast.expr | None:
    """N of ``batch.chunk(N)`` and ``torch.chunk(batch, N)``; ``split`` is given rows."""
    if last_name(call.func) not in ("chunk", "tensor_split", "array_split"):
        return None
    of_a_module = isinstance(call.func, ast.Attribute) and dotted(call.func.value) in ("torch", "np", "numpy")
    given = call.args[1:2] if of_a_module or isinstance(call.func, ast.Name) else call.args[:1]
    named = keyword(call, "chunks")
    return given[0] if given else named


def window_of_context(script: Script, call: ast.Call) -> Window:
    """``with accelerator.accumulate(model)``."""
    size = accelerator_steps(script)
    text = script.text(size) if size is not None else ""
    resolved = number(script, size)
    made = script.calls("Accelerator")
    if size is None and made and not any(word.arg is None for each in made for word in each.keywords):
        resolved = Number(1, "literal", call)  # the library's own default
    return Window("accumulate-context", call, script.span(call), text, size, resolved)


def accelerator_steps(script: Script) -> ast.expr | None:
    """What the script gives to ``Accelerator(gradient_accumulation_steps=...)``, its plugin, or sets afterwards."""
    for call in script.nodes(ast.Call):
        name = script.qualified(call.func).rpartition(".")[2]
        if name == "Accelerator":
            given = keyword(call, "gradient_accumulation_steps")
            if given is not None:
                return given
        if name == "GradientAccumulationPlugin":
            return keyword(call, "num_steps")
    for assign in script.nodes(ast.Assign):
        target = assign.targets[0]
        sets = isinstance(target, ast.Attribute) and target.attr == "gradient_accumulation_steps"
        if sets and origin(script, target.value).endswith("Accelerator"):  # type: ignore[attr-defined]
            return assign.value
    return None


def framework_steps(script: Script) -> ast.expr | None:
    """The window's size where the file hands it to a framework: Lightning's Trainer, mmengine's wrapper, DeepSpeed."""
    for call in script.nodes(ast.Call):
        for name in ("accumulate_grad_batches", "accumulative_counts"):
            given = keyword(call, name)
            if given is not None:
                return given
    for dictionary in script.nodes(ast.Dict):
        for key, value in zip(dictionary.keys, dictionary.values, strict=True):
            if isinstance(key, ast.Constant) and key.value in _FRAMEWORK_KEYS:
                return value
    return None


_FRAMEWORK_KEYS = {"gradient_accumulation_steps", "accumulative_counts", "accumulate_grad_batches"}
