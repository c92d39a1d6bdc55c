"""One training script: its tree, walked once, with the few look-ups that every rule needs.

Positions that leave this module count from 1 in characters of the text as it was given; Python's own count bytes.
"""

import ast
import os
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, wraps
from typing import Any, TypeVar

from firstfault.lint.notebook import Notebook
from firstfault.lint.parse import parse
from firstfault.text import LineTable, Position, Span

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Loop = ast.For | ast.AsyncFor | ast.While
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
Node = TypeVar("Node", bound=ast.AST)
Fact = TypeVar("Fact")
_BOM = "\ufeff"
_WITHOUT_PLACE = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)


def read_script(source: str, path: str) -> "Script | None":
    """A script, or None where its text does not parse even after repair."""
    notebook = Notebook.read(source) if path.endswith(".ipynb") else None
    if path.endswith(".ipynb") and notebook is None:
        return None
    text = notebook.text if notebook else source
    parsed = parse(text.removeprefix(_BOM))
    return Script(path, text, parsed.tree, parsed.problem, notebook) if parsed else None


class Script:
    """The facts of one text. Built once, never changed."""

    def __init__(
        self, path: str, source: str, tree: ast.Module, problem: SyntaxError | None, notebook: Notebook | None
    ) -> None:
        self.path = path
        self.source = source
        self.tree = tree
        self.problem = problem
        self.notebook = notebook
        self.table = LineTable(source)
        self.memo: dict[object, Any] = {}
        self._parents: dict[ast.AST, ast.AST] = {}
        self._below: dict[ast.AST, list[ast.AST]] = {}
        self._by_type: dict[type[ast.AST], list[ast.AST]] = {}
        self._qualified: dict[ast.AST, str] = {}
        self._first_column = 1 if source.startswith(_BOM) else 0
        self._walk()

    def nodes(self, *types: type[Node]) -> list[Node]:
        """All nodes of these exact types, in the order of the text within each type."""
        return [node for each in types for node in self._by_type.get(each, [])]  # type: ignore[misc]

    def calls(self, *names: str) -> list[ast.Call]:
        """All calls of what has one of these last names: ``nn.utils.clip_grad_norm_`` has ``clip_grad_norm_``."""
        return [call for each in names for call in self._calls_by_name.get(each, [])]

    @property
    def words(self) -> Iterable[str]:
        """The names and attributes of the text, each once."""
        return self._by_word.keys()

    def named(self, word: str) -> list[ast.Name | ast.Attribute]:
        """Where a name, or an attribute of it, stands."""
        return self._by_word.get(word, [])

    def returns(self, function: ast.AST | None) -> list[ast.Return]:
        """The return statements of a function itself."""
        return self._returns.get(function, [])

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._parents.get(node)

    def below(self, node: ast.AST) -> list[ast.AST]:
        """The nodes directly under a node, in the order of the text; operators and contexts left out."""
        return self._below.get(node, [])

    def walk(self, root: ast.AST) -> Iterator[ast.AST]:
        """A node of this script and all under it, in the order of the text: `ast.walk`, many times as fast."""
        todo = [root]
        while todo:
            node = todo.pop()
            yield node
            todo += reversed(self._below.get(node, []))

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, innermost first, up to the module."""
        above = self._parents.get(node)
        while above is not None:
            yield above
            above = self._parents.get(above)

    def statement(self, node: ast.AST) -> ast.stmt:
        while not isinstance(node, ast.stmt):
            node = self._parents[node]
        return node

    def function(self, node: ast.AST) -> Function | None:
        """The function around a node (not the node itself)."""
        return next((each for each in self.ancestors(node) if isinstance(each, FUNCTIONS)), None)

    def scope(self, node: ast.AST) -> ast.AST:
        return self.function(node) or self.tree

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        return next((each for each in self.ancestors(node) if isinstance(each, ast.ClassDef)), None)

    def loop(self, node: ast.AST) -> Loop | None:
        """The innermost loop around a node within its function."""
        below = node
        for above in self.ancestors(node):
            if isinstance(above, FUNCTIONS):
                return None
            if isinstance(above, LOOPS) and below not in above.orelse and not _is_loop_head(above, below):
                return above
            below = above
        return None

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that a statement stands in."""
        holder = self._parents[statement]
        for name in ("body", "orelse", "finalbody"):
            block = getattr(holder, name, None)
            if isinstance(block, list) and statement in block:
                return block
        return [statement]

    def span(self, node: ast.AST) -> Span:
        start, end = _start(node), _end(node)
        return Span(self.position(*start), self.position(*end))

    def line(self, node: ast.AST) -> int:
        return _start(node)[0]

    def position(self, line: int, byte_column: int) -> Position:
        """A position of Python's parser in our count."""
        shift = self._first_column if line == 1 else 0
        text = self.line_text(line)[shift:]
        if not text.isascii():
            byte_column = len(text.encode("utf-8", "surrogatepass")[:byte_column].decode("utf-8", "replace"))
        return Position(line, byte_column + shift + 1)

    def line_text(self, line: int) -> str:
        starts = self.table.starts
        end = starts[line] if line < len(starts) else self.table.length
        return self.source[starts[line - 1] : end].rstrip("\r\n")

    def text(self, node: ast.AST) -> str:
        """A node as the user wrote it."""
        span = self.span(node)
        return self.source[self.table.offset(span.start) : self.table.offset(span.end)]

    @cached_property
    def imports(self) -> dict[str, str]:
        """Local name -> qualified name, for every import wherever it stands; relative ones keep their dots."""
        found: dict[str, str] = {}
        for node in self.nodes(ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        for from_ in self.nodes(ast.ImportFrom):
            module = "." * from_.level + (from_.module or "")
            for alias in from_.names:
                found[alias.asname or alias.name] = f"{module}.{alias.name}" if from_.module else module + alias.name
        return found

    @cached_property
    def definitions(self) -> dict[str, ast.AST]:
        """Functions and classes by name; a method as ``Class.method``. The first of a name counts."""
        found: dict[str, ast.AST] = {}
        for node in self.nodes(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
            above = self._parents[node]
            name = f"{above.name}.{node.name}" if isinstance(above, ast.ClassDef) else node.name  # type: ignore[attr-defined]
            found.setdefault(name, node)
        return found

    def qualified(self, node: ast.AST | None) -> str:
        """``F.cross_entropy`` -> ``torch.nn.functional.cross_entropy``; "" for what is not a dotted name."""
        if node is None:
            return ""
        name = self._qualified.get(node)
        if name is None:  # rules ask for the same names again and again
            head, dot, rest = dotted(node).partition(".")
            name = self._qualified[node] = self.imports.get(head, head) + dot + rest
        return name

    @cached_property
    def _by_word(self) -> dict[str, list[ast.Name | ast.Attribute]]:
        found: dict[str, list[ast.Name | ast.Attribute]] = {}
        for name in self.nodes(ast.Name):
            found.setdefault(name.id, []).append(name)
        for attribute in self.nodes(ast.Attribute):
            found.setdefault(attribute.attr, []).append(attribute)
        return found

    @cached_property
    def _calls_by_name(self) -> dict[str, list[ast.Call]]:
        found: dict[str, list[ast.Call]] = {}
        for call in self.nodes(ast.Call):
            if name := last_name(call.func):
                found.setdefault(name, []).append(call)
        return found

    @cached_property
    def _returns(self) -> dict[ast.AST | None, list[ast.Return]]:
        found: dict[ast.AST | None, list[ast.Return]] = {}
        for each in self.nodes(ast.Return):
            found.setdefault(self.function(each), []).append(each)
        return found

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path)

    def _walk(self) -> None:
        """Parents and lists by type in one pass, in the order of the text."""
        parents, by_type = self._parents, self._by_type
        todo: list[ast.AST] = [self.tree]
        while todo:
            node = todo.pop()
            by_type.setdefault(type(node), []).append(node)
            below: list[ast.AST] = []
            for name in node._fields:
                value = getattr(node, name, None)
                if isinstance(value, list):
                    below += [each for each in value if isinstance(each, ast.AST)]
                elif isinstance(value, ast.AST) and not isinstance(value, _WITHOUT_PLACE):
                    below.append(value)
            if below:
                self._below[node] = below
                for each in below:
                    parents[each] = node
                todo += reversed(below)


def per_script(build: Callable[[Script], Fact]) -> Callable[[Script], Fact]:
    """Compute a fact once per script and keep it as long as the script lives."""

    @wraps(build)
    def remembered(script: Script) -> Fact:
        if build not in script.memo:
            script.memo[build] = build(script)
        fact: Fact = script.memo[build]
        return fact

    return remembered


def dotted(node: ast.AST | None) -> str:
    """``a.b.c`` of a chain of names and attributes; "" for anything else."""
    if isinstance(node, ast.Name):  # most of them, at little cost
        return node.id
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    parts.append(node.id)
    return ".".join(reversed(parts))


def last_name(node: ast.expr) -> str:
    """``pad_sequence`` of ``torch.nn.utils.rnn.pad_sequence``, of any expression that ends in a name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_loop_head(loop: Loop, below: ast.AST) -> bool:
    """A node of the iterable or the test is not inside the loop."""
    return below is (loop.test if isinstance(loop, ast.While) else loop.iter)


def _start(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 1), getattr(node, "col_offset", 0)


def _end(node: ast.AST) -> tuple[int, int]:
    line, column = _start(node)
    return getattr(node, "end_lineno", None) or line, getattr(node, "end_col_offset", None) or column
