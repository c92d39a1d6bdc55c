"""Which other parts of a script a piece of it needs: imports, functions, classes, constants, values of the function."""

import ast
import builtins
import textwrap
from collections.abc import Iterable, Iterator

from firstfault.lint.bindings import Binding, last_binding
from firstfault.lint.script import Script

_BUILTINS = frozenset(dir(builtins))
_OPTIONS = ("parse_args", "parse_known_args", "parse_args_into_dataclasses")


class Needed:
    """Collects what is copied to the top of a probe; the values that belong into a function are given back."""

    def __init__(self, script: Script, size: str = "") -> None:
        self.script = script
        self.size = size  # the window's size as the script writes it: the number of micro-batches takes its place
        self._module: dict[ast.stmt, None] = {}
        self._imported: set[str] = {"torch"}
        self._open_above: dict[str, str] = {}  # what parts of the module need and the script does not tell
        self._named = set(_bound(script, script.tree))

    def by(self, roots: Iterable[ast.AST], at: ast.AST, given: set[str]) -> list[str]:
        """The lines that give a value to every name that these nodes use and that is not ``given``."""
        lines: dict[str, str] = {}
        used = list(roots)
        for name in list(free_names(self.script, used)):
            self._resolve(name, at, used, given, lines)
        return [self._with_size(line or self._open(name, used)) for name, line in lines.items()]

    def imports(self) -> list[str]:
        """The imports of the script that something here uses."""
        found: dict[str, None] = {}
        have_torch = False
        statements: list[ast.Import | ast.ImportFrom] = self.script.nodes(ast.Import, ast.ImportFrom)
        for node in sorted(statements, key=lambda each: each.lineno):
            names = {alias.asname or alias.name.partition(".")[0] for alias in node.names}
            if "annotations" in names or names & self._imported:
                found[textwrap.dedent(self.script.text(node))] = None
                have_torch = have_torch or "torch" in names
        future = [text for text in found if text.startswith("from __future__")]
        extra = [] if have_torch else ["import torch"]
        if "SimpleNamespace" in self._imported and "SimpleNamespace" not in self.script.imports:
            extra.insert(0, "from types import SimpleNamespace")
        return [*future, *extra, *self._search_path(), *(text for text in found if text not in future)]

    def _search_path(self) -> list[str]:
        """Where the script says its own modules are; the probe stands beside it."""
        calls = [each for each in self.script.tree.body if isinstance(each, ast.Expr)]
        texts = [self.script.text(each) for each in calls]
        texts = [text for text in texts if text.startswith(("sys.path.append(", "sys.path.insert("))]
        return ["import os", "import sys", *texts] if texts else []

    def module_texts(self) -> list[str]:
        """The parts of the module, in its order; constants that follow each other stay together."""
        groups: list[list[str]] = [list(self._open_above.values())] if self._open_above else []
        constants = False
        for node in sorted(self._module, key=lambda each: each.lineno):
            plain = not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            if not (plain and constants):
                groups.append([])
            groups[-1].append(self._with_decorators(node))
            constants = plain
        return ["\n".join(group) for group in groups]

    def use(self, name: str) -> None:
        self._imported.add(name)

    def _resolve(self, name: str, at: ast.AST, roots: list[ast.AST], given: set[str], lines: dict[str, str]) -> None:
        """Adds the line that gives a name its value; an empty one where the script does not tell it."""
        if name in given or name in lines:
            return
        parameters = _parameters(self.script, at)
        if name in parameters and _value(last_binding(self.script, name, at)) is None:
            lines[name] = parameters[name]
            return
        if name in self.script.imports:
            self._imported.add(name)
            return
        definition = self.script.definitions.get(name)
        if definition is not None and self.script.parent(definition) is self.script.tree:
            self._take(definition)
            return
        binding = last_binding(self.script, name, at)
        value = _value(binding)
        if name == "device" and isinstance(value, (ast.Constant, ast.JoinedStr)):  # a probe runs on the CPU
            lines[name] = 'device = "cpu"'
            return
        if binding is None or value is None or _reads_options(value):
            if name in self._named or not (name in _BUILTINS or self._takes_all()):
                lines[name] = ""
            return
        statement = self.script.statement(binding.node)
        if self.script.parent(statement) is self.script.tree:
            self._take(statement)
            return
        roots.append(value)
        for each in free_names(self.script, [value]):
            if each != name:
                self._resolve(each, statement, roots, given | {name}, lines)
        text = self.script.text(value)  # without the parentheses that may have held its lines together
        lines[name] = f"{name} = ({text})" if "\n" in text else f"{name} = {text}"

    def _takes_all(self) -> bool:
        """Does the script import everything of some module? Then names that it sets nowhere come from there."""
        if any(alias.name == "*" for each in self.script.nodes(ast.ImportFrom) for alias in each.names):
            self._imported.add("*")
        return "*" in self._imported

    def _take(self, statement: ast.AST) -> None:
        """A statement of the module, and what it needs itself; options that it reads are left to the user."""
        if not isinstance(statement, ast.stmt) or statement in self._module:
            return
        self._module[statement] = None
        lines: dict[str, str] = {}
        roots: list[ast.AST] = [statement]
        for name in free_names(self.script, [statement]):
            self._resolve(name, statement, roots, set(), lines)
        for name, line in lines.items():
            self._open_above.setdefault(name, line or self._open(name, roots))

    def _open(self, name: str, roots: list[ast.AST]) -> str:
        """A place to fill, with the attributes that are read."""
        attributes = dict.fromkeys(
            node.attr
            for root in roots
            for node in self.script.walk(root)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name
            if self.script.text(node) != self.size
        )
        called = any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name) and node.func.value.id == name
            for root in roots for node in self.script.walk(root)
        )  # fmt: skip
        if name == "device" and not attributes:
            return 'device = "cpu"'
        if not attributes or called:
            return f"{name} = ...  # FILL IN"
        self._imported.add("SimpleNamespace")
        values = ", ".join(f'{each}="cpu"' if each == "device" else f"{each}=..." for each in attributes)
        return f"{name} = SimpleNamespace({values})  # FILL IN"

    def _with_size(self, line: str) -> str:
        return line.replace(self.size, "len(micro_batches)") if "." in self.size else line

    def _with_decorators(self, node: ast.stmt) -> str:
        decorators = getattr(node, "decorator_list", [])
        above = "".join(f"@{self.script.text(each)}\n" for each in decorators)
        return above + self.script.text(node)


def free_names(script: Script, roots: Iterable[ast.AST]) -> Iterator[str]:
    """The names that are read and not set inside, in the order of the text, each once."""
    roots = list(roots)
    bound = {name for root in roots for name in _bound(script, root)}
    bound -= set(_counted_up(script, roots))
    bound -= _read_first(script, roots)
    seen: set[str] = set()
    for root in roots:
        for node in script.walk(root):
            read = isinstance(node, ast.Name) and (isinstance(node.ctx, ast.Load) or _is_augmented(script, node))
            if read and isinstance(node, ast.Name) and node.id not in bound | seen:
                seen.add(node.id)
                yield node.id


def _bound(script: Script, root: ast.AST) -> Iterator[str]:
    for node in script.walk(root):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.ExceptHandler):
            yield node.name or ""
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]


def _counted_up(script: Script, roots: list[ast.AST]) -> Iterator[str]:
    """``total += loss`` reads the name too: it has a value from before, unless one stands further up in here."""
    names = [node for root in roots for node in script.walk(root) if isinstance(node, ast.Name)]
    names = [node for node in names if not isinstance(node.ctx, ast.Load)]
    plain = {(node.id, node.lineno) for node in names if not _is_augmented(script, node)}
    for node in names:
        if _is_augmented(script, node) and not any(name == node.id and line < node.lineno for name, line in plain):
            yield node.id


def _read_first(script: Script, roots: list[ast.AST]) -> set[str]:
    """Names that a loop reads further up than it sets them: they have a value from before."""
    lines: dict[bool, dict[str, int]] = {True: {}, False: {}}
    others = set()
    for node in (node for root in roots for node in script.walk(root)):
        if isinstance(node, ast.Name):
            first = lines[isinstance(node.ctx, ast.Load)]
            first[node.id] = min(node.lineno, first.get(node.id, node.lineno))
        elif isinstance(node, ast.comprehension):
            others |= {each.id for each in script.walk(node.target) if isinstance(each, ast.Name)}
        elif isinstance(node, ast.arg):
            others.add(node.arg)
    return {name for name, line in lines[False].items() if lines[True].get(name, line) < line} - others


def _parameters(script: Script, at: ast.AST) -> dict[str, str]:
    """The parameters of the functions around a node, with the line that their default is: empty where there is none."""
    found: dict[str, str] = {}
    above = script.parent(at)
    while above is not None:
        if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)):
            each = above.args
            named = [*each.posonlyargs, *each.args]
            defaults = dict(zip(reversed(named), reversed(each.defaults), strict=False))
            defaults |= {name: value for name, value in zip(each.kwonlyargs, each.kw_defaults, strict=True) if value}
            for name in (*named, *each.kwonlyargs):
                value = defaults.get(name)
                plain = isinstance(value, ast.Constant)
                found.setdefault(name.arg, f"{name.arg} = {script.text(value)}" if value and plain else "")
        above = script.parent(above)
    return found


def _is_augmented(script: Script, node: ast.Name) -> bool:
    above = script.parent(node)
    return isinstance(above, ast.AugAssign) and above.target is node


def _value(binding: Binding | None) -> ast.expr | None:
    """What a plain assignment gives, one of several included: ``total, count = 0.0, 0``."""
    if binding is None or binding.kind not in ("assign", "unpacked"):
        return None
    if binding.item is None:
        return binding.value if binding.kind == "assign" else None
    value = binding.value
    return value.elts[binding.item] if isinstance(value, ast.Tuple) and binding.item < len(value.elts) else None


def _reads_options(value: ast.expr) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr in _OPTIONS for each in ast.walk(value))
