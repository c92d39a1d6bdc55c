"""What the settings files beside a script say: YAML and JSON files, and Python modules that only set values.

They are read line by line for ``key: value`` and never loaded: a file with tags of its own, or half typed, still says
what it says. A key that two files set to different things is unknown, unless the script names one of the files.
"""

import ast
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from firstfault.lint.script import Script, dotted, last_name
from firstfault.lint.workspace import Workspace

_FOLDERS = ("", "config", "configs", "conf", "cfg")
_ENDINGS = (".yaml", ".yml", ".json")
_MODULE = re.compile(r"(?:\w*_)?(?:config|conf|cfg|settings|options|hparams|params)s?\d*\.py", re.IGNORECASE)
_MOST_FILES = 24
_SET = re.compile(r"""^[ \t]*(?:- )?["']?(?P<key>[\w.-]+)["']?[ \t]*:[ \t]*(?P<value>[^\s#{\[&*|>][^#]*)?""")
_FLOW = re.compile(r"""["']?([\w.-]+)["']?[ \t]*:[ \t]*("[^"]*"|'[^']*'|[^\s,{}\[\]"'][^,{}\[\]]*)""")


class Setting(NamedTuple):
    """``backbone: resnet50`` at a line of a file; the value without quotes."""

    path: str
    line: int
    value: str


def config_value(script: Script, name: str, workspace: Workspace) -> Setting | None:
    """What the settings files say for the last part of a name (``conf.net.backbone``: ``backbone``), if they agree."""
    key = name.rpartition(".")[2]
    found = [each for path in _files(script, workspace) for each in _settings(path, key, workspace)]
    named = [each for each in found if os.path.basename(each.path) in script.source]
    chosen = named or found
    values = {each.value for each in chosen} - {"", "null", "~", "None", "none"}
    return next(each for each in chosen if each.value in values) if len(values) == 1 else None


def setting_name(node: ast.expr) -> str:
    """The key that ``conf.net.backbone``, ``section["backbone"]``, ``conf.get("backbone")`` look up; else ""."""
    last: ast.expr | None = None
    if isinstance(node, ast.Subscript):
        last = node.slice
    elif isinstance(node, ast.Call) and last_name(node.func) == "get" and node.args:
        last = node.args[0]
    if last is not None:
        return last.value if isinstance(last, ast.Constant) and isinstance(last.value, str) else ""
    return node.attr if isinstance(node, ast.Attribute) else ""


def _files(script: Script, workspace: Workspace) -> list[str]:
    """The settings files beside the script and in the usual folders there, then those at the project's root."""
    roots = dict.fromkeys((os.path.abspath(script.folder or "."), workspace.root_of(script)))
    folders = dict.fromkeys(os.path.join(root, name) for root in roots for name in _FOLDERS)
    files = [os.path.join(folder, name) for folder in folders for name in _named(workspace.names(folder))]
    return files if len(files) <= _MOST_FILES else []  # a collection of experiments tells nothing


def _named(names: list[str]) -> list[str]:
    return [each for each in names if each.endswith(_ENDINGS) or _MODULE.fullmatch(each)]


def _settings(path: str, key: str, workspace: Workspace) -> Iterator[Setting]:
    if path.endswith(".py"):
        module = workspace.script(path)
        yield from _set_in_module(module, key) if module else ()
        return
    text = workspace.text(path)
    for number, line in enumerate(text.split("\n"), 1) if text and key in text else ():
        value = _value_in_line(line, key)
        if value is not None:
            yield Setting(path, number, value)


def _value_in_line(line: str, key: str) -> str | None:
    match = _SET.match(line)
    if match and match["key"] == key:
        return (match["value"] or "").strip().rstrip(",").strip("\"'")
    return next((each[2].strip().strip("\"'") for each in _FLOW.finditer(line) if each[1] == key), None)


def _set_in_module(module: Script, key: str) -> Iterator[Setting]:
    """``cfg.backbone = "resnet50"``, ``backbone = "resnet50"``, ``Namespace(backbone="resnet50")``."""
    for assign in module.nodes(ast.Assign):
        if any(dotted(each).rpartition(".")[2] == key for each in assign.targets):
            yield from _constant(module, assign.value)
    for word in module.nodes(ast.keyword):
        if word.arg == key:
            yield from _constant(module, word.value)
    for table in module.nodes(ast.Dict):
        for name, value in zip(table.keys, table.values, strict=True):
            if isinstance(name, ast.Constant) and name.value == key:
                yield from _constant(module, value)


def _constant(module: Script, value: ast.expr) -> Iterator[Setting]:
    if isinstance(value, ast.Constant):
        yield Setting(module.path, module.line(value), str(value.value))
