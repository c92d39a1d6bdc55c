"""What a back-propagated loss is made of: its summands, followed back to the calls that compute them.

    loss = F.cross_entropy(scores, labels, ignore_index=-100)
    loss = loss / steps
    loss.backward()            # one term: the cross_entropy call, divided by ``steps``

A term that cannot be followed has the kind "unknown"; no rule builds on it.
"""

import ast
import re
from dataclasses import dataclass, replace
from typing import Literal, TypeGuard

from firstfault.lint.bindings import Binding, bindings, keyword, last_binding, number
from firstfault.lint.calls import last_name
from firstfault.lint.objects import Instance, argument, instance
from firstfault.lint.script import Script, dotted
from firstfault.lint.training_loop import callee, calls_of
from firstfault.lint.workspace import Workspace

Kind = Literal["cross-entropy", "model-output", "mean", "sum", "unknown"]
_DEPTH = 24
_CALLS = 3


@dataclass(frozen=True, slots=True)
class Scale:
    """A division or a multiplication between the term and backward."""

    node: ast.AST  # the BinOp or AugAssign
    operand: ast.expr  # the divisor or the factor
    divides: bool
    factor: ast.expr  # the side of the node that is not the loss: ``1 / N``, or a name for it


@dataclass(frozen=True, slots=True)
class Entry:
    """A call that a term was followed through, into the function of the same file or of a sibling."""

    script: Script
    call: ast.Call
    callee_script: Script
    function: ast.FunctionDef | ast.AsyncFunctionDef
    is_method: bool


@dataclass(frozen=True, slots=True)
class Term:
    kind: Kind
    script: Script  # where ``node`` stands
    node: ast.expr  # the call that computes the loss
    maker: ast.Call | None = None  # the constructor of a criterion: nn.CrossEntropyLoss(...)
    maker_home: Script | None = None  # where that stands
    model: Instance | None = None  # of a model's output
    scales: tuple[Scale, ...] = ()
    entries: tuple[Entry, ...] = ()
    one_of_several: bool = False  # a function returns this loss or another one


def home_of(script: Script, term: Term, node: ast.AST) -> Script:
    """The script that a part of a term stands in: the loop's, or one that the term was followed into."""
    for home in (script, *(entry.callee_script for entry in term.entries)):
        if home.parent(node) is not None:
            return home
    return term.script


CROSS_ENTROPIES = {
    "torch.nn.functional.cross_entropy",
    "torch.nn.functional.nll_loss",
    "torch.nn.CrossEntropyLoss",
    "torch.nn.NLLLoss",
    "torch.nn.modules.loss.CrossEntropyLoss",
}
_SCALES = {"div": True, "mul": False}  # methods, and whether they divide
_SAME_VALUE = {"to", "cuda", "cpu", "float", "double", "half", "clone", "contiguous", "squeeze", "view", "reshape"}


def loss_terms(script: Script, loss: ast.expr, workspace: Workspace) -> tuple[Term, ...]:
    """The summands of a loss expression as it stands where backward runs."""
    return _Trace(workspace).of(script, loss, loss, _DEPTH, ())


class _Trace:
    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def of(
        self, script: Script, node: ast.expr, at: ast.AST, depth: int, entries: tuple[Entry, ...]
    ) -> tuple[Term, ...]:
        """The terms of an expression, its names read as they are set above ``at``."""
        unknown = (Term("unknown", script, node, entries=entries),)
        if depth == 0:
            return unknown
        if isinstance(node, ast.BinOp):
            return self._operation(script, node, at, depth, entries)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self.of(script, node.operand, at, depth - 1, entries)
        if isinstance(node, ast.IfExp):
            chosen = node.orelse if isinstance(node.body, ast.Constant) else node.body
            return self.of(script, chosen, at, depth - 1, entries)
        if isinstance(node, ast.Call):
            return self._call(script, node, at, depth, entries, None)
        if isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and not _is_setting(script, node, at)):
            return self._part(script, node, at, depth, entries)
        name = dotted(node)
        binding = last_binding(script, name, at) if name else None
        return self._binding(script, binding, depth, entries) if binding else unknown

    def _binding(self, script: Script, binding: Binding, depth: int, entries: tuple[Entry, ...]) -> tuple[Term, ...]:
        if binding.kind == "assign" and binding.value is not None:
            return self.of(script, binding.value, binding.node, depth - 1, entries)
        if binding.kind == "unpacked" and isinstance(binding.value, ast.Call):
            return self._call(script, binding.value, binding.node, depth, entries, binding.item)
        if binding.kind == "augmented" and isinstance(binding.node, ast.AugAssign):
            return self._augmented(script, binding.node, depth, entries)
        given = _handed_over(script, binding, entries) if binding.kind == "parameter" else None
        if given is not None:
            home, value, at, outside = given
            return self.of(home, value, at, depth - 1, outside)
        where = binding.value if binding.value is not None else ast.Name(binding.name)
        return (Term("unknown", script, where, entries=entries),)

    def _augmented(
        self, script: Script, node: ast.AugAssign, depth: int, entries: tuple[Entry, ...]
    ) -> tuple[Term, ...]:
        before = self.of(script, node.target, node, depth - 1, entries)
        if isinstance(node.op, (ast.Div, ast.Mult)):
            divides = isinstance(node.op, ast.Div)
            return (
                _scaled(before, Scale(node, node.value, True, node.value))
                if divides
                else _times(script, before, node, node.value)
            )
        if isinstance(node.op, (ast.Add, ast.Sub)):
            return (*before, *self.of(script, node.value, node, depth - 1, entries))
        return (Term("unknown", script, node.target, entries=entries),)

    def _operation(
        self, script: Script, node: ast.BinOp, at: ast.AST, depth: int, entries: tuple[Entry, ...]
    ) -> tuple[Term, ...]:
        def inner(side: ast.expr) -> tuple[Term, ...]:
            return self.of(script, side, at, depth - 1, entries)

        if isinstance(node.op, ast.Div):
            return _scaled(inner(node.left), Scale(node, node.right, True, node.right))
        if isinstance(node.op, ast.Mult):
            left, right = inner(node.left), inner(node.right)
            if _only_unknown(left) and (not _only_unknown(right) or _is_weight(script, node.left)):
                return _times(script, right, node, node.left)
            return _times(script, left, node, node.right)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            sides = [side for side in (node.left, node.right) if number(script, side) is None]
            return tuple(term for side in sides for term in inner(side))
        return (Term("unknown", script, node, entries=entries),)

    def _part(
        self, script: Script, node: ast.Attribute | ast.Subscript, at: ast.AST, depth: int, entries: tuple[Entry, ...]
    ) -> tuple[Term, ...]:
        """``outputs.loss``, ``outputs["loss"]``, ``outputs[0]``, ``model(...).loss``."""
        unknown = (Term("unknown", script, node, entries=entries),)
        binding = last_binding(script, dotted(node.value), at) if dotted(node.value) else None
        whole = node.value if isinstance(node.value, ast.Call) else binding.value if binding else None
        if not isinstance(whole, ast.Call) or not _names_loss(node):
            return unknown
        item = node.attr if isinstance(node, ast.Attribute) else getattr(node.slice, "value", None)
        return self._call(script, whole, binding.node if binding else at, depth, entries, item)

    def _call(
        self,
        script: Script,
        call: ast.Call,
        at: ast.AST,
        depth: int,
        entries: tuple[Entry, ...],
        item: object,
    ) -> tuple[Term, ...]:
        name = script.qualified(call.func)
        if name in CROSS_ENTROPIES:
            return (Term("cross-entropy", script, call, entries=entries),)
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("mean", "sum"):
            return self._reduced(script, call, call.func, at, depth, entries)
        if isinstance(call.func, ast.Attribute) and call.func.attr in _SAME_VALUE:
            return self.of(script, call.func.value, at, depth - 1, entries)
        if isinstance(call.func, ast.Attribute) and call.func.attr in _SCALES and len(call.args) == 1:
            by = call.args[0]
            scale = Scale(call, by, _SCALES[call.func.attr], by)
            return _scaled(self.of(script, call.func.value, at, depth - 1, entries), scale)
        if name in ("torch.mean", "torch.sum") and call.args:
            kind: Kind = "mean" if name == "torch.mean" else "sum"
            return (Term(kind, script, call, entries=entries),)
        return self._object_call(script, call, depth, entries, item)

    def _reduced(
        self,
        script: Script,
        call: ast.Call,
        function: ast.Attribute,
        at: ast.AST,
        depth: int,
        entries: tuple[Entry, ...],
    ) -> tuple[Term, ...]:
        """``loss.mean()`` of the losses of several devices is the loss again; of anything else it is a reduction."""
        below = self.of(script, function.value, at, depth - 1, entries)
        whole = all(each.kind in ("cross-entropy", "model-output") and not _keeps_elements(each) for each in below)
        if below and whole:
            return below
        kind: Kind = "mean" if function.attr == "mean" else "sum"
        return (Term(kind, script, call, entries=entries),)

    def _object_call(
        self, script: Script, call: ast.Call, depth: int, entries: tuple[Entry, ...], item: object
    ) -> tuple[Term, ...]:
        """A call of a criterion, of a model, or of a function whose text is at hand."""
        found = self.workspace.definition(callee(script, call), script)
        if found and isinstance(found[1], (ast.FunctionDef, ast.AsyncFunctionDef)):
            is_method = dotted(call.func).startswith("self.")
            return self._into(Entry(script, call, found[0], found[1], is_method), depth, entries, item)
        owner = instance(script, call.func.value, self.workspace) if isinstance(call.func, ast.Attribute) else None
        if owner is not None and owner.definition is not None and owner.script is not None:
            method = _method(owner.definition, last_name(call.func))
            if method is not None:
                return self._into(Entry(script, call, owner.script, method, True), depth, entries, item)
        thing = instance(script, call.func, self.workspace)
        if thing is not None and thing.name in CROSS_ENTROPIES:
            return (Term("cross-entropy", script, call, maker=thing.call, maker_home=thing.home, entries=entries),)
        if thing is not None and thing.definition is not None and thing.script is not None:
            method = _method(thing.definition, "forward")
            if method is not None:
                return self._into(Entry(script, call, thing.script, method, True), depth, entries, item)
        if item is not None and (thing is None or thing.definition is None) and _passes_labels(script, call):
            return (Term("model-output", script, call, model=thing, entries=entries),)
        return (Term("unknown", script, call, entries=entries),)

    def _into(self, entry: Entry, depth: int, entries: tuple[Entry, ...], item: object) -> tuple[Term, ...]:
        if len(entries) >= _CALLS or any(entry.function is each.function for each in entries):
            return (Term("unknown", entry.script, entry.call, entries=entries),)
        inside = (*entries, entry)
        ways: list[tuple[Term, ...]] = []
        for value in _returned(entry.callee_script, entry.function):
            chosen = _chosen(entry.callee_script, value, item)
            if chosen is not None:
                ways.append(self.of(entry.callee_script, chosen, value, depth - 1, inside))
        known = [way for way in ways if any(each.kind != "unknown" for each in way)]
        if len(known) > 1:
            known = [tuple(replace(each, one_of_several=True) for each in way) for way in known]
        terms = [each for way in known or ways for each in way if each.kind != "unknown" or not known]
        return tuple(terms) or (Term("unknown", entry.script, entry.call, entries=entries),)


def _handed_over(
    script: Script, binding: Binding, entries: tuple[Entry, ...]
) -> tuple[Script, ast.expr, ast.AST, tuple[Entry, ...]] | None:
    """What the call that led into a function gives for its parameter; of a function where the trace begins, its only
    call in the file: ``self.backward(loss)``.
    """
    function = script.function(binding.node)
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    for at, entry in enumerate(entries):
        if entry.function is function:
            given = argument(entry.call, function, binding.name)
            return (entry.script, given, entry.call, entries[:at]) if given is not None else None
    calls = calls_of(script, function) if not entries else []
    given = argument(calls[0], function, binding.name) if len(calls) == 1 else None
    return (script, given, calls[0], ()) if given is not None else None


def _method(owner: ast.ClassDef, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    return next(
        (
            each
            for each in owner.body
            if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and each.name == name
        ),
        None,
    )


def _returned(script: Script, function: ast.AST) -> list[ast.expr]:
    return [each.value for each in script.returns(function) if each.value is not None]


def _chosen(script: Script, value: ast.expr, item: object, hops: int = 3) -> ast.expr | None:
    """The part of a returned value that the caller takes as the loss."""
    if isinstance(value, ast.IfExp):  # ((loss,) + output) if loss is not None else output
        return _chosen(script, value.body, item, hops)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and isinstance(value.left, ast.Tuple):
        return _chosen(script, value.left, item, hops)
    if isinstance(value, ast.Tuple):
        if isinstance(item, int) and item < len(value.elts):
            return value.elts[item]
        return None
    if isinstance(value, ast.Name) and item is not None and hops:
        binding = last_binding(script, value.id, value)
        holder = binding.value if binding and binding.kind == "assign" else None
        if isinstance(holder, (ast.Tuple, ast.Dict, ast.IfExp, ast.Call)) or _is_tuple_sum(holder):
            return _chosen(script, holder, item, hops - 1)
    if isinstance(value, ast.Dict):
        for key, each in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == item:
                return each
        return None
    if isinstance(value, ast.Call) and item in ("loss", 0):
        given = keyword(value, "loss")
        return given if given is not None else value
    return None if isinstance(value, ast.Constant) else value


def _is_tuple_sum(value: ast.expr | None) -> TypeGuard[ast.BinOp]:
    return isinstance(value, ast.BinOp) and isinstance(value.left, ast.Tuple)


def _names_loss(node: ast.Attribute | ast.Subscript) -> bool:
    if isinstance(node, ast.Attribute):
        return "loss" in node.attr
    index = node.slice
    return isinstance(index, ast.Constant) and (index.value == 0 or "loss" in str(index.value))


def _is_setting(script: Script, node: ast.Attribute, at: ast.AST) -> bool:
    """``self.loss`` that the class itself sets is a name, not a part of an output."""
    return last_binding(script, dotted(node), at) is not None if dotted(node) else False


def _passes_labels(script: Script, call: ast.Call) -> bool:
    """A model is given its labels: by name, or in a batch that is spread over its arguments."""
    return any(each.arg is None or "label" in each.arg for each in call.keywords)


def _keeps_elements(term: Term) -> bool:
    call = term.maker or term.node
    reduction = keyword(call, "reduction") if isinstance(call, ast.Call) else None
    return isinstance(reduction, ast.Constant) and reduction.value == "none"


def _scaled(terms: tuple[Term, ...], scale: Scale) -> tuple[Term, ...]:
    return tuple(replace(each, scales=(*each.scales, scale)) for each in terms)


def _times(
    script: Script, terms: tuple[Term, ...], node: ast.BinOp | ast.AugAssign, factor: ast.expr
) -> tuple[Term, ...]:
    """``loss * (1 / N)`` is a division by N, also where ``1 / N`` has a name."""
    share = _set_once(script, factor)
    if isinstance(share, ast.BinOp) and isinstance(share.op, ast.Div) and isinstance(share.left, ast.Constant):
        return _scaled(terms, Scale(node, share.right, True, factor))
    return _scaled(terms, Scale(node, factor, False, factor))


def _set_once(script: Script, node: ast.expr) -> ast.expr:
    """What a name stands for where one assignment alone sets it; else the name."""
    places = bindings(script, dotted(node), node) if dotted(node) else []
    value = places[0].value if len(places) == 1 and places[0].kind == "assign" else None
    return value if value is not None else node


_WEIGHT = re.compile(r"weight|coef|lambda|^lam|alpha|beta|gamma", re.IGNORECASE)


def _is_weight(script: Script, node: ast.expr) -> bool:
    """``9 * distance``, ``self.ctc_weight * ctc``: what stands on the left is no loss."""
    return number(script, node) is not None or (bool(dotted(node)) and bool(_WEIGHT.search(last_name(node))))


def _only_unknown(terms: tuple[Term, ...]) -> bool:
    return all(each.kind == "unknown" for each in terms)
