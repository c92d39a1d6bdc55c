"""Edits of a loss function that is handed to transformers' Trainer: take the number of items, and divide by it."""

import ast

from firstfault.lint.bindings import keyword
from firstfault.lint.hf_trainer import ITEMS, Override, items_of
from firstfault.lint.loss_override import ReturnedMean
from firstfault.lint.rule import Fix
from firstfault.lint.script import Script, dotted
from firstfault.text import Edit, Position, Span

_FLAG = "self.model_accepts_loss_kwargs = False"


def parameter_edit(script: Script, function: ast.FunctionDef) -> Edit | None:
    """``, num_items_in_batch=None`` behind the last parameter."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    if arguments.vararg is not None or not named:
        return None
    last = max(named, key=lambda each: _end(script, each))
    end = max(_end(script, each) for each in (*named, *_defaults(arguments)))
    return Edit(Span(end, end), _one_more(script, last, f"{ITEMS}=None"))


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [each for each in (*arguments.defaults, *arguments.kw_defaults) if each is not None]


def argument_edit(script: Script, call: ast.Call, text: str) -> Edit | None:
    """One more argument of a call; None where parentheses or comments stand behind the last one."""
    given: list[ast.AST] = [*call.args, *call.keywords]
    if not given:
        end = _end(script, call)
        end = end._replace(column=end.column - 1)
        return Edit(Span(end, end), text)
    last = max(given, key=lambda each: _end(script, each))
    end = _end(script, last)
    behind = script.source[script.table.offset(end) : script.table.offset(_end(script, call)) - 1]
    return Edit(Span(end, end), _one_more(script, last, text)) if not behind.strip(" \t\r\n,") else None


def _one_more(script: Script, last: ast.AST, text: str) -> str:
    """Behind the last one, or on a line of its own where the last one has one."""
    start = script.span(last).start
    before = script.line_text(start.line)[: start.column - 1]
    return f",\n{before}{text}" if not before.strip() else f", {text}"


def forwarding_fix(script: Script, override: Override, found: ReturnedMean) -> Fix | None:
    """``super().compute_loss(..., num_items_in_batch=num_items_in_batch)``: the base class does the rest."""
    given = f"{ITEMS}={items_of(override.method)}"
    edit = argument_edit(script, found.node, given) if isinstance(found.node, ast.Call) else None
    if edit is None:
        return None
    return Fix("Hand `num_items_in_batch` on to the Trainer's own `compute_loss`", "safe", (edit,))


def model_fix(script: Script, override: Override, found: ReturnedMean) -> Fix | None:
    """The model normalises by itself where it is told the number; only the mean over the ranks is left to undo."""
    name, items = _set_once(script, found), items_of(override.method)
    edit = argument_edit(script, found.node, f"{ITEMS}={items}") if isinstance(found.node, ast.Call) else None
    if edit is None or name is None or not isinstance(found.term.node, ast.Call) or found.term.entries:
        return None
    statement, loss = name
    lines = [
        f"if {items} is not None and self.args.average_tokens_across_devices:",
        f"    {loss} = {loss} * self.accelerator.num_processes",
    ]
    return Fix("Pass `num_items_in_batch` to the model", "safe", (edit, below(script, statement, lines)))


def sum_fix(script: Script, function: ast.FunctionDef, found: ReturnedMean, items: str, ranks: bool) -> Fix | None:
    """A cross-entropy of the function itself: the sum over its labels, divided by those of the window."""
    name = _set_once(script, found)
    maker = found.term.maker or found.term.node
    if name is None or not isinstance(maker, ast.Call) or script.function(maker) is not function or found.term.entries:
        return None
    if not found.alone or any(keyword(maker, each) is not None for each in ("reduction", "weight", "size_average")):
        return None
    if found.term.maker is not None and maker.args:
        return None  # weights of the classes
    statement, loss = name
    chosen = f'reduction="mean" if {items} is None else "sum"'
    lines = [f"if {items} is not None:", f"    {loss} = {loss} / {items}"]
    if ranks:
        lines += [
            "    if self.args.average_tokens_across_devices:",
            f"        {loss} = {loss} * self.accelerator.num_processes",
        ]
    edit = argument_edit(script, maker, chosen)
    if edit is None:
        return None
    title = f"Divide the sum of the losses by `{ITEMS}`"
    return Fix(title, "safe", (edit, below(script, statement, lines)))


def flag_fix(script: Script, owner: ast.ClassDef, partial: bool) -> Fix | None:
    """``self.model_accepts_loss_kwargs = False``: then the Trainer divides by the steps."""
    init = next((each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
    if init is None:
        first = owner.body[0]
        documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        lines = [
            "def __init__(self, *args, **kwargs):", "    super().__init__(*args, **kwargs)", f"    {_FLAG}",
        ]  # fmt: skip
        edit = below(script, first, ["", *lines]) if documented else _above(script, first, [*lines, ""])
    else:
        call = next((each for each in init.body if _is_super_init(each)), None)
        if call is None:
            return None
        edit = below(script, call, [_FLAG])
    title = "Let the Trainer divide the loss by the accumulation steps"
    return Fix(title, "partial" if partial else "safe", (edit,))


def _is_super_init(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "__init__"


def _set_once(script: Script, found: ReturnedMean) -> tuple[ast.stmt, str] | None:
    """The one statement that sets the returned name to the loss of the model, or of the criterion."""
    value = found.place.value
    while isinstance(value, (ast.IfExp, ast.Tuple)):
        value = value.body if isinstance(value, ast.IfExp) else value.elts[0]
    name = dotted(value)
    function = script.function(found.place)
    sets = [
        each
        for each in script.nodes(ast.Assign)
        if script.function(each) is function and any(dotted(target) == name for target in each.targets)
    ]
    changed = [each for each in script.nodes(ast.AugAssign) if dotted(each.target) == name]
    plain = len(sets) == 1 and not changed and isinstance(value, ast.Name)
    return (sets[0], name) if plain and sets[0] in getattr(function, "body", []) else None


def below(script: Script, statement: ast.stmt, lines: list[str]) -> Edit:
    indent = " " * (script.span(statement).start.column - 1)
    end = script.span(statement).end
    end = end._replace(column=len(script.line_text(end.line)) + 1)
    text = "".join(f"\n{indent}{line}" if line else "\n" for line in lines)
    return Edit(Span(end, end), text)


def _above(script: Script, statement: ast.stmt, lines: list[str]) -> Edit:
    decorators = getattr(statement, "decorator_list", [])
    start = script.span(decorators[0] if decorators else statement).start
    start = start._replace(column=1)
    indent = " " * (script.span(statement).start.column - 1)
    return Edit(Span(start, start), "".join(f"{indent}{line}\n" if line else "\n" for line in lines))


def _end(script: Script, node: ast.AST) -> Position:
    return script.span(node).end
