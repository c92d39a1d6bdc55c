"""The extension's ``protocol.ts``, printed from the server's ``lsp/protocol.py``: same names, same shapes."""

import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from firstfault.lsp import protocol

HEAD = "// Printed from pyserver/firstfault/lsp/protocol.py by scripts/generate.py: change it there."
PRIMITIVES: dict[Any, str] = {
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
    None: "null",
    Any: "unknown",
}


def module() -> str:
    return "\n\n".join([HEAD, "\n".join(_constants()), *_types()]) + "\n"


def _constants() -> Iterator[str]:
    for name, value in vars(protocol).items():
        if name.isupper() and isinstance(value, str | int):
            yield f"export const {name} = {_literal(value)};"


def _types() -> Iterator[str]:
    for name, value in vars(protocol).items():
        if is_typeddict(value):
            yield _interface(name, value)
        elif isinstance(value, types.UnionType) or get_origin(value) in (Union, Literal):
            yield f"export type {name} = {_type(value)};"


def _interface(name: str, shape: Any) -> str:
    hints = get_type_hints(shape)
    fields = [f"  {key}{'' if key in shape.__required_keys__ else '?'}: {_type(hints[key])};" for key in hints]
    return "\n".join([*_comment(shape.__doc__), f"export interface {name} {{", *fields, "}"])


def _comment(text: str | None) -> list[str]:
    return [f"/** {' '.join(text.replace('``', '`').split())} */"] if text else []


def _type(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if is_typeddict(hint):
        return str(hint.__name__)
    if origin is Literal:
        return " | ".join(map(_literal, arguments))
    if origin is Union or isinstance(hint, types.UnionType):
        return _alias(hint) or " | ".join(dict.fromkeys(_type(each) for each in arguments))
    if origin in (list, tuple):
        return _list(_type(arguments[0]))
    if origin is dict:
        return f"Record<{_type(arguments[0])}, {_type(arguments[1])}>"
    return PRIMITIVES[hint]


def _alias(hint: Any) -> str | None:
    """The union's parts with a named union of the module taken together: ``Rank | null``."""
    for name, value in vars(protocol).items():
        if name.startswith("_") or not (isinstance(value, types.UnionType) or get_origin(value) is Union):
            continue
        named, parts = get_args(value), get_args(hint)
        if set(named) <= set(parts):
            rest = [_type(each) for each in parts if each not in named]
            return " | ".join(dict.fromkeys([name, *rest])) if rest or value is not hint else None
    return None


def _list(item: str) -> str:
    return f"({item})[]" if "|" in item else f"{item}[]"


def _literal(value: str | int) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
