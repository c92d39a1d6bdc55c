"""Where a script writes the value that a loss leaves out: the proof that the number of counted tokens varies.

``ignore_index`` alone proves nothing: blocks of fixed length with nothing ignored are common. Somebody must write it.
"""

import ast
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from firstfault.lint.bindings import bindings, keyword, number
from firstfault.lint.calls import last_name
from firstfault.lint.script import Script, dotted, per_script
from firstfault.lint.workspace import Workspace

HF_IGNORED = -100
Manner = Literal["written", "padded", "random", "collator"]


class Write(NamedTuple):
    """One place that puts a value into labels."""

    manner: Manner
    value: ast.expr | None  # None: a library's collator, which writes -100
    node: ast.AST


class Proof(NamedTuple):
    script: Script
    node: ast.AST
    manner: Manner
    shown: str  # the ignored value as the script writes it


@per_script
def writes(script: Script) -> tuple[Write, ...]:
    """Every place of a script that may write an ignored value, in the order of the text."""
    found = [*_assigned(script), *_calls(script), *_repeated(script), *_chosen(script)]
    return tuple(sorted(found, key=lambda each: (script.line(each.node), script.span(each.node).start.column)))


class Ignored(NamedTuple):
    """What a loss leaves out, and how certain it is that labels written somewhere are the labels of this loss."""

    value: ast.expr | None  # None: the default, -100
    owner: Script
    names: frozenset[str]  # what the labels are called on their way into the loss
    by_name_only: bool  # nothing else ties written labels to this loss


def proof_of_ignored(scripts: list[Script], ignored: Ignored, workspace: Workspace) -> Proof | None:
    """The first place, the scripts taken in their order, that writes the value which the loss ignores."""
    wanted = HF_IGNORED if ignored.value is None else value_of(ignored.owner, ignored.value, workspace)
    text = dotted(ignored.value).rpartition(".")[2] if ignored.value is not None else ""
    for script in scripts:
        for write in writes(script):
            if not _is_value(script, write, wanted, text, workspace) or _is_metric(script, write.node):
                continue
            if _is_unused(script, write.node, scripts):
                continue
            if _is_of_this_loss(script, write, wanted, ignored):
                manner: Manner = "random" if _is_random(script, write) else write.manner
                shown = script.text(write.value) if write.value is not None else str(HF_IGNORED)
                return Proof(script, write.node, manner, shown)
    return None


_LABELS = re.compile(r"label|target|tgt|gold|answer|truth", re.IGNORECASE)


def _is_of_this_loss(script: Script, write: Write, wanted: float | None, ignored: Ignored) -> bool:
    """-100 means one thing; other numbers are written for many reasons: labels are written, or padding, by name."""
    called = written_to(script, write.node)
    if called & ignored.names:
        return True
    if ignored.by_name_only:
        return False
    if isinstance(write.node, ast.Call) and last_name(write.node.func) in ("pad_sequence", "pad"):
        return True
    if wanted is None or wanted == HF_IGNORED or any(_LABELS.search(each) for each in called):
        return True
    return write.value is not None and _is_pad(dotted(write.value).rpartition(".")[2])


def written_to(script: Script, node: ast.AST) -> set[str]:
    """The names that a written value ends up under: variables, attributes, keys, keyword arguments."""
    found: set[str] = set()
    below = node
    for above in (node, *script.ancestors(node)):
        if isinstance(above, ast.keyword) and above.arg:
            found.add(above.arg)
        if isinstance(above, ast.Dict) and below in above.values:
            key = above.keys[above.values.index(below)]
            found |= {str(key.value)} if isinstance(key, ast.Constant) else set()
        if isinstance(above, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            for target in above.targets if isinstance(above, ast.Assign) else [above.target]:
                found |= names_in(target)
        if isinstance(above, ast.Expr) and isinstance(above.value, ast.Call):  # labels.append(-100)
            found |= names_in(above.value.func)
        if isinstance(above, ast.stmt):
            break
        below = above
    return found


def names_in(node: ast.AST) -> set[str]:
    """The names, attributes and text keys of an expression."""
    found = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            found.add(each.id)
        elif isinstance(each, ast.Attribute):
            found.add(each.attr)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            found.add(each.value)
    return found


def _is_value(script: Script, write: Write, wanted: float | None, text: str, workspace: Workspace) -> bool:
    if write.value is None:
        return wanted == HF_IGNORED
    written = value_of(script, write.value, workspace)
    if wanted is not None and wanted < 0:
        return written == wanted
    if write.manner != "padded":  # zeros and other small numbers are written for many reasons
        return False
    if wanted is not None:
        return written == wanted
    word = dotted(write.value).rpartition(".")[2]
    return (_is_pad(text) and _is_pad(word)) or (text == word and "ignore" in text.lower())


def _is_pad(name: str) -> bool:
    return "pad" in name.lower()


def value_of(script: Script, node: ast.expr, workspace: Workspace) -> float | None:
    """The number of an expression, also where its name is imported from a sibling."""
    found = number(script, node)
    if found is not None:
        return found.value
    if _is_default_of_cross_entropy(script, node):
        return HF_IGNORED
    head, _, rest = dotted(node).partition(".")
    qualified = script.imports.get(head, "")
    if not qualified:
        return None
    module, _, name = (f"{qualified}.{rest}" if rest else qualified).rpartition(".")
    home = workspace.module(module or ".", script) if name else None
    values = bindings(home, name, home.tree) if home is not None else []
    if home is None or len(values) != 1:
        return None
    there = number(home, values[0].value)
    return there.value if there else None


def _is_default_of_cross_entropy(script: Script, node: ast.expr, hops: int = 3) -> bool:
    """``nn.CrossEntropyLoss().ignore_index``, also where it has a name."""
    if isinstance(node, ast.Attribute) and node.attr == "ignore_index" and isinstance(node.value, ast.Call):
        made = node.value
        return last_name(made.func) == "CrossEntropyLoss" and keyword(made, "ignore_index") is None
    places = bindings(script, dotted(node), node) if dotted(node) and hops else []
    values = [each.value for each in places if each.kind == "assign"]
    return len(values) == 1 and values[0] is not None and _is_default_of_cross_entropy(script, values[0], hops - 1)


def _assigned(script: Script) -> Iterator[Write]:
    """``labels[mask] = -100`` and ``labels[:n] = [-100] * n``."""
    for node in script.nodes(ast.Assign):
        if any(isinstance(target, ast.Subscript) for target in node.targets):
            yield Write("written", node.value, node)


def _calls(script: Script) -> Iterator[Write]:
    for call in script.nodes(ast.Call):
        name = last_name(call.func)
        if name in _COLLATORS:
            at_random = _is_masked_language_model(name, call)
            if at_random or name != "DataCollatorForLanguageModeling" or not _cuts_blocks(script):
                yield Write("random" if at_random else "collator", None, call)
        elif name in _WRITERS:
            manner, given = _written_by(name, call)
            for value in given:
                yield Write(manner, value, call)
        else:
            label_pad = keyword(call, "label_pad_token_id")
            if label_pad is not None:
                yield Write("padded", label_pad, call)


_COLLATORS = {
    "DataCollatorForSeq2Seq",
    "DataCollatorForTokenClassification",
    "DataCollatorForLanguageModeling",
    "DataCollatorForCompletionOnlyLM",
    "DataCollatorWithFlattening",
}
_WRITERS = {
    "masked_fill",
    "masked_fill_",
    "where",
    "pad_sequence",
    "pad",
    "full",
    "full_like",
    "new_full",
    "append",
    "fill_",
}


def _is_masked_language_model(name: str, call: ast.Call) -> bool:
    mlm = keyword(call, "mlm")
    off = isinstance(mlm, ast.Constant) and mlm.value is False
    return name == "DataCollatorForLanguageModeling" and not off


@per_script
def _cuts_blocks(script: Script) -> bool:
    """Texts are joined and cut into blocks of one length, so that a collator has nothing to pad."""
    if any(each.arg == "return_overflowing_tokens" for call in script.nodes(ast.Call) for each in call.keywords):
        return True
    return any(_is_cut(each) for each in script.nodes(ast.ListComp))


def _is_cut(node: ast.ListComp) -> bool:
    """``[text[at : at + BLOCK] for at in range(0, whole, BLOCK)]``."""
    steps = node.generators[0].iter
    part = node.elt.slice if isinstance(node.elt, ast.Subscript) else None
    if not isinstance(part, ast.Slice) or not isinstance(steps, ast.Call) or dotted(steps.func) != "range":
        return False
    width = part.upper.right if isinstance(part.upper, ast.BinOp) else None
    return width is not None and len(steps.args) == 3 and ast.dump(width) == ast.dump(steps.args[2])


def _written_by(name: str, call: ast.Call) -> tuple[Manner, list[ast.expr]]:
    if name == "pad_sequence":
        value = keyword(call, "padding_value")
        return "padded", [value if value is not None else ast.Constant(0)]
    if name == "pad":
        given = [keyword(call, "value"), keyword(call, "constant_values"), *call.args[3:4]]
        return "padded", [each for each in given if each is not None]
    if name in ("full", "full_like", "new_full"):
        given = [keyword(call, "fill_value"), *call.args[1:2]]
        return "padded", [each for each in given if each is not None]
    if name == "where":
        return "written", call.args[1:3]
    if name in ("masked_fill", "masked_fill_"):
        given = [keyword(call, "value"), *call.args[1:2]]
        return "written", [each for each in given if each is not None]
    return "written", call.args[:1]


def _repeated(script: Script) -> Iterator[Write]:
    """``[-100] * len(prompt)``."""
    for node in script.nodes(ast.BinOp):
        for side in (node.left, node.right) if isinstance(node.op, ast.Mult) else ():
            if isinstance(side, ast.List) and len(side.elts) == 1:
                yield Write("padded", side.elts[0], node)


def _chosen(script: Script) -> Iterator[Write]:
    """``[-100 if token == pad else token for token in labels]``."""
    for node in script.nodes(ast.IfExp):
        for side in (node.body, node.orelse):
            yield Write("written", side, node)


_RANDOM = re.compile(r"^(?:bernoulli|rand|rand_like|random|randperm|uniform)$")


def _is_random(script: Script, write: Write) -> bool:
    """The positions are drawn at random (masked language models): the counts differ, but little."""
    if write.manner == "random":
        return True
    function = script.function(write.node)
    if function is None:
        return False
    line = script.line(write.node)
    calls = (each for each in script.walk(function) if isinstance(each, ast.Call) and script.line(each) <= line)
    return any(_RANDOM.match(last_name(each.func)) for each in calls)


def _is_unused(script: Script, node: ast.AST, scripts: list[Script]) -> bool:
    """A function that none of the scripts names: what it writes is for somebody else. A collator's name is enough."""
    function = next((each for each in script.ancestors(node) if script.parent(each) is script.tree), None)
    if (
        not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        or function.decorator_list
        or "collat" in function.name
    ):
        return False
    if any(isinstance(each, ast.Attribute) and each.attr == "backward" for each in script.walk(function)):
        return False
    return not any(function.name in _names_used(each) for each in scripts)


@per_script
def _names_used(script: Script) -> frozenset[str]:
    imported = {alias.name for each in script.nodes(ast.ImportFrom) for alias in each.names}
    attributes = {each.attr for each in script.nodes(ast.Attribute)}
    return frozenset({each.id for each in script.nodes(ast.Name)} | attributes | imported)


def _is_metric(script: Script, node: ast.AST) -> bool:
    """Predictions padded for a metric say nothing about the labels of training."""
    function = script.function(node)
    name = getattr(function, "name", "")
    return bool(re.search(r"metric|eval|valid|predict|decode|generate|score", name, re.IGNORECASE))
