"""The edits that end, or for one part repair, BatchNorm's dependence on the micro-batch.

A fix is offered only where it can be made rightly in this file, for every layer at once; else it is None.
"""

import ast
from collections.abc import Iterator, Sequence

from firstfault.lint.bindings import keyword
from firstfault.lint.norms import BatchNorm, is_batch_norm_class, is_torch_batch_norm, star_imports
from firstfault.lint.norms_frozen import freezes_or_replaces
from firstfault.lint.norms_modes import train_statements
from firstfault.lint.rule import Fix
from firstfault.lint.script import Script, dotted
from firstfault.lint.training_loop import TrainingLoop
from firstfault.lint.window import Window
from firstfault.text import Edit, Position, Span

_ARGUMENTS = ("num_features", "eps", "momentum", "affine", "track_running_stats")
_KEPT = ("eps", "affine", "device", "dtype", "bias")
_KNOWN = {*_ARGUMENTS, *_KEPT, "process_group"}
_OWN_TO_BATCH_NORM = {
    "running_mean",
    "running_var",
    "num_batches_tracked",
    "track_running_stats",
    "reset_running_stats",
}
_MOST_GROUPS = 32  # the group norm paper's own choice
_PURE_CALLS = ("int", "round", "max", "min")
_FRESH_NAMES = ("module", "layer", "norm_layer", "batch_norm_layer")


# ------------------------------------------------------------------------------------------- GroupNorm


def group_norm(script: Script, layers: Sequence[BatchNorm]) -> Fix | None:
    """Every constructor becomes a GroupNorm of the same channels; tests for BatchNorm ask for GroupNorm."""
    calls = _literal_constructors(script, layers)
    if not calls or _reads_statistics(script):
        return None
    edits: list[Edit] = []
    needs = _Needs(script)
    for call in calls:
        text = _group_norm_call(script, call, needs)
        if text is None:
            return None
        edits.append(Edit(script.span(call), text))
    edits += [Edit(script.span(each), needs.group_norm(each)) for each in _asked_classes(script)]
    what = "the BatchNorm layer" if len(calls) == 1 else f"the {len(calls)} BatchNorm layers"
    return Fix(f"Replace {what} by GroupNorm", "unsafe", (*needs.import_edits(), *edits))


def groups_for(channels: int, least: int = 2) -> int:
    """The largest divisor of the channels up to 32 that leaves at least so many channels in a group.

    One channel in a group would be normalised over its positions alone: over a single one to zero.
    """
    most = min(_MOST_GROUPS, channels // least)
    return next((groups for groups in range(most, 1, -1) if channels % groups == 0), 1)


def groups_expression(channels: str, least: int = 2, gcd: str = "math.gcd") -> str:
    """The same for channels that are known at run time: the powers of two among the divisors."""
    return f"max(1, {gcd}({_MOST_GROUPS * least}, {channels}) // {least})"


def _group_norm_call(script: Script, call: ast.Call, needs: "_Needs") -> str | None:
    given = _given(call)
    channels = given.get("num_features")
    if channels is None or not _is_pure(channels):
        return None
    least = 8 if script.qualified(call.func).endswith("1d") else 2  # (N, C) has no positions: a group is all there is
    text = script.text(channels)
    if isinstance(channels, ast.Constant) and isinstance(channels.value, int):
        if channels.value < 2:
            return None
        groups = str(groups_for(channels.value, least))
    else:
        gcd = needs.gcd()
        if not gcd:
            return None
        groups = groups_expression(text, least, gcd)
    kept = [f"{name}={script.text(given[name])}" for name in _KEPT if name in given]
    return f"{needs.group_norm(call.func)}({', '.join([groups, text, *kept])})"


def _is_pure(node: ast.expr) -> bool:
    """Whether an expression can be written twice: names and arithmetic."""
    return all(
        isinstance(
            each, (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.BinOp, ast.operator, ast.expr_context)
        )
        or (isinstance(each, ast.Call) and dotted(each.func) in _PURE_CALLS and not each.keywords)
        or isinstance(each, (ast.UnaryOp, ast.unaryop))
        for each in ast.walk(node)
    )


def _reads_statistics(script: Script) -> bool:
    """Whether the file touches what a GroupNorm does not have."""
    return any(each.attr in _OWN_TO_BATCH_NORM for each in script.nodes(ast.Attribute))


def _asked_classes(script: Script) -> Iterator[ast.expr]:
    """The BatchNorm classes in ``isinstance(m, ...)``, for groups of weights and initialisers to go on working."""
    for call in script.nodes(ast.Call):
        if dotted(call.func) != "isinstance" or len(call.args) != 2:
            continue
        asked = call.args[1].elts if isinstance(call.args[1], ast.Tuple) else [call.args[1]]
        if any(script.qualified(each).endswith("GroupNorm") for each in asked) or freezes_or_replaces(script, call):
            continue
        yield from [each for each in asked if is_batch_norm_class(script, each)][:1]


class _Needs:
    """How a name of torch.nn or math is written in this script, and the import that it still needs."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._imports: dict[Position, str] = {}

    def group_norm(self, written: ast.expr) -> str:
        """``GroupNorm`` in the spelling of the class that it replaces."""
        text = self._script.text(written)
        if isinstance(written, ast.Attribute):
            owner = dotted(written.value)
            return f"{owner.removesuffix('.modules.batchnorm')}.GroupNorm"
        known = next((name for name, full in self._script.imports.items() if full == "torch.nn.GroupNorm"), None)
        if known or "torch.nn" in star_imports(self._script):
            return known or "GroupNorm"
        module = module_name(self._script, "torch.nn")
        return f"{module}.GroupNorm" if module else self._beside(text)

    def gcd(self) -> str:
        """``math.gcd``; "" where the script has no import at its left margin to put one more beside."""
        for name, full in self._script.imports.items():
            if full in ("math.gcd", "math"):
                return name if full == "math.gcd" else f"{name}.gcd"
        at = _first_import(self._script)
        if at is None:
            return ""
        self._imports.setdefault(at, "import math" + _line_end(self._script))
        return "math.gcd"

    def import_edits(self) -> Iterator[Edit]:
        for position, text in self._imports.items():
            yield Edit(Span(position, position), text)

    def _beside(self, name: str) -> str:
        """Import GroupNorm in the statement that imports the BatchNorm class."""
        for node in self._script.nodes(ast.ImportFrom):
            if any((alias.asname or alias.name) == name for alias in node.names):
                self._imports.setdefault(self._script.span(node.names[-1]).end, ", GroupNorm")
        return "GroupNorm"


def module_name(script: Script, qualified: str) -> str:
    """How a module is written in a script: ``nn``, else ``torch.nn``; "" where it is not imported."""
    whole = next((name for name, full in script.imports.items() if full == qualified), "")
    outer = (
        f"{name}{qualified[len(full) :]}" for name, full in script.imports.items() if qualified.startswith(f"{full}.")
    )
    return whole or next(outer, "")


def _first_import(script: Script) -> Position | None:
    """The place of the first import of the module's own body, after ``__future__``."""
    for statement in script.tree.body:
        future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if isinstance(statement, (ast.Import, ast.ImportFrom)) and not future:
            return Position(script.line(statement), 1)
    return None


# -------------------------------------------------------------------------------------------- freezing


def freeze(script: Script, loop: TrainingLoop) -> Fix | None:
    """After each ``model.train()`` of the training code, BatchNorm layers go back to eval mode."""
    module = module_name(script, "torch.nn")
    statements = train_statements(script, loop)
    if not module or not statements:
        return None
    edits = [_freeze_edit(script, statement, module) for statement in statements]
    if any(each is None for each in edits):
        return None
    return Fix(
        "Keep BatchNorm in eval mode while training (fine-tuning only)", "unsafe", tuple(each for each in edits if each)
    )


def _freeze_edit(script: Script, statement: ast.Expr, module: str) -> Edit | None:
    call = statement.value
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    line = script.line_text(script.line(statement))
    indent = line[: len(line) - len(line.lstrip())]
    if not _is_alone(script, statement):
        return None
    name = _fresh_name(script, statement)
    lines = (
        f"for {name} in {script.text(call.func.value)}.modules():",
        f"    if isinstance({name}, {module}.modules.batchnorm._BatchNorm):",
        f"        {name}.eval()",
    )
    end = script.span(statement).end
    at = Position(end.line, len(script.line_text(end.line)) + 1)
    return Edit(Span(at, at), "".join(f"{_line_end(script)}{indent}{each}" for each in lines))


def _line_end(script: Script) -> str:
    return "\r\n" if "\r\n" in script.source else "\n"


def _is_alone(script: Script, statement: ast.stmt) -> bool:
    """Whether nothing else stands on the statement's lines but a comment."""
    span = script.span(statement)
    before = script.line_text(span.start.line)[: span.start.column - 1]
    after = script.line_text(span.end.line)[span.end.column - 1 :].strip()
    return not before.strip() and (not after or after.startswith("#"))


def _fresh_name(script: Script, node: ast.AST) -> str:
    taken = {each.id for each in ast.walk(script.scope(node)) if isinstance(each, ast.Name)} | set(script.imports)
    return next((each for each in _FRESH_NAMES if each not in taken), "frozen_batch_norm_layer")


# -------------------------------------------------------------------------------------------- momentum


def momentum(script: Script, layers: Sequence[BatchNorm], window: Window) -> Fix | None:
    """``momentum=1 - (1 - m) ** (1 / k)``: k updates in a window then weigh what one did."""
    calls = _literal_constructors(script, layers)
    edits = [_momentum_edit(script, call, window) for call in calls]
    if not edits or any(each is None for each in edits):
        return None
    return Fix(
        "Correct the momentum for the window (running statistics only)",
        "partial",
        tuple(each for each in edits if each),
    )


def is_corrected(script: Script, layers: Sequence[BatchNorm]) -> bool:
    """Whether every layer's momentum is already spread over a window."""
    given = [_given(each.node).get("momentum") for each in layers if isinstance(each.node, ast.Call)]
    return bool(given) and all(each is not None and _is_spread(each) for each in given)


def _is_spread(node: ast.expr) -> bool:
    """``1 - (1 - m) ** (1 / k)``."""
    return any(
        isinstance(each, ast.BinOp)
        and isinstance(each.op, ast.Pow)
        and any(isinstance(part, ast.Div) for part in ast.walk(each.right))
        for each in ast.walk(node)
    )


def _momentum_edit(script: Script, call: ast.Call, window: Window) -> Edit | None:
    size = _size_seen_from(script, call, window)
    given = _given(call)
    now = given.get("momentum")
    if size is None or (isinstance(now, ast.Constant) and now.value is None) or (now is not None and not _is_pure(now)):
        return None
    old = script.text(now) if now is not None else "0.1"
    if isinstance(now, ast.BinOp):
        old = f"({old})"
    new = f"1 - (1 - {old}) ** (1 / {size})"
    if now is not None:
        return Edit(script.span(now), new)
    last = (*call.args, *(each.value for each in call.keywords))
    at = script.span(max(last, key=lambda each: (each.end_lineno or 0, each.end_col_offset or 0))).end if last else None
    return Edit(Span(at, at), f", momentum={new}") if at else None


def _size_seen_from(script: Script, call: ast.Call, window: Window) -> str | None:
    """The window's size as it can be written at the constructor: a literal, or a constant of the module."""
    node = window.size_node
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return str(node.value)
    if not isinstance(node, ast.Name):
        return None
    return node.id if _is_module_constant(script, node.id) and not _is_shadowed(script, node.id, call) else None


def _is_module_constant(script: Script, name: str) -> bool:
    places = [each for each in script.tree.body if isinstance(each, (ast.Assign, ast.AnnAssign)) and _sets(each, name)]
    stores = [each for each in script.nodes(ast.Name) if each.id == name and isinstance(each.ctx, ast.Store)]
    return len(places) == 1 and len(stores) == 1


def _sets(statement: ast.Assign | ast.AnnAssign, name: str) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return any(dotted(each) == name for each in targets)


def _is_shadowed(script: Script, name: str, call: ast.Call) -> bool:
    """A parameter of the same name, or a constructor that runs before the constant is set."""
    function = script.function(call)
    if function is not None and any(arg.arg == name for arg in ast.walk(function) if isinstance(arg, ast.arg)):
        return True
    store = next(each for each in script.nodes(ast.Name) if each.id == name and isinstance(each.ctx, ast.Store))
    set_at, built_at = script.line(store), script.line(call)
    if set_at < built_at:
        return False
    return function is None or any(built_at < script.line(each) < set_at for each in _calls_at_start(script))


def _calls_at_start(script: Script) -> list[ast.Call]:
    """The calls of the file's own functions and classes that run when the module is loaded."""
    calls = (each for each in script.nodes(ast.Call) if script.function(each) is None)
    return [each for each in calls if dotted(each.func).partition(".")[0] in script.definitions]


# ----------------------------------------------------------------------------------------------- shared


def _literal_constructors(script: Script, layers: Sequence[BatchNorm]) -> list[ast.Call]:
    """The constructors, where every layer of the model is one of torch's own, written out; else none."""
    calls = [each.node for each in layers if each.kind == "constructor"]
    whole = all(
        isinstance(call, ast.Call)
        and is_torch_batch_norm(script, call.func)
        and not any(isinstance(each, ast.Starred) for each in call.args)
        and all(each.arg in _KNOWN for each in call.keywords)
        and len(call.args) <= len(_ARGUMENTS)
        for call in calls
    )
    known = all(each.kind in ("constructor", "parameter groups", "conversion") for each in layers)
    return [each for each in calls if isinstance(each, ast.Call)] if whole and known else []


def _given(call: ast.expr) -> dict[str, ast.expr]:
    """Argument name -> expression."""
    if not isinstance(call, ast.Call):
        return {}
    found = dict(zip(_ARGUMENTS, call.args, strict=False))
    for name in (*_ARGUMENTS, *_KEPT):
        value = keyword(call, name)
        if value is not None:
            found[name] = value
    return found
