"""Reads and checks the files of ``signatures/``, and compiles them into one JSON value for ``library``.

``firstfault.library`` needs this room only where a checkout's files have changed; a build needs it for the wheel.
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from firstfault.library import ROLES, LibraryError, is_signature_file

# Two unbounded repeats of nearly anything make a pattern quadratic on a long line; \w+ and [\d.]+ end early.
_UNBOUNDED = re.compile(r"(?:(?<!\\)\.|\\[SWD]|(?<!\\)\[\^[^\]]*\])(?:[*+]|\{\d*,\})")
_NESTED = re.compile(r"[*+}][^()|]*\)(?:[*+]|\{\d*,\})")
MIN_LITERAL = 4
TEXTS = ("id", "title", "category", "role", "explain", "cause", "verify", "limits")
LISTS = ("fix", "narrows", "related", "references")
TABLES = ("match", "missing", "sample", "near_miss")


def compile_library(directory: str) -> dict[str, dict[str, Any]]:
    """The compiled files by name, ready for JSON. Raises LibraryError for the first bad file below ``directory``."""
    failures = [_read_failure(path) for path in toml_files(os.path.join(directory, "failures"))]
    prefixes = [_read_prefix(path) for path in toml_files(os.path.join(directory, "prefixes"))]
    prefixes.sort(key=lambda each: (each["order"], each["id"]))
    examples = {each["id"]: {key: each.pop(key) for key in ("samples", "near_misses")} for each in failures}
    return {
        "library.json": {"failures": [_packed(each) for each in failures], "prefixes": prefixes},
        "examples.json": {"examples": examples},
    }


def _packed(failure: dict[str, Any]) -> list[Any]:
    """What the gate needs, and the rest as JSON text, which is read only when a log holds one of the literals."""
    literals = [literal for entry in failure["matches"] for literal in entry[6]]
    codes = [code for entry in failure["matches"] for code in entry[5]]
    return [failure["id"], literals, codes, json.dumps(failure)]


def toml_files(directory: str) -> list[str]:
    found = []
    for folder, _, names in os.walk(directory):
        found += [os.path.join(folder, name) for name in names if is_signature_file(name)]
    return sorted(found)


def _read_toml(path: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with open(path, "rb") as file:
            raw: dict[str, Any] = tomllib.load(file)
            return raw
    except ValueError as error:
        raise LibraryError(f"{path}: {error}") from error


def _read_failure(path: str) -> dict[str, Any]:
    raw = _read_toml(path)
    _demand_shapes(path, raw)
    name, category = os.path.basename(path)[:-5], os.path.basename(os.path.dirname(path))
    _demand(path, raw.get("id") == name, f"id must be the file's name, {name}")
    _demand(path, raw.get("category") == category, f"category must be the folder's name, {category}")
    _demand(path, raw.get("role") in ROLES, f"role must be one of {', '.join(ROLES)}")
    for key in ("title", "explain", "cause", "fix", "limits"):
        _demand(path, bool(raw.get(key)), f"{key} is missing")
    _demand(path, bool(raw.get("match")), "[[match]] is missing")
    establishes = raw.get("establishes", True)
    missing = [[each["fact"], each["how"]] for each in raw.get("missing", [])]
    _demand(path, establishes or bool(missing), "what does not establish a cause needs [[missing]]")
    matches = [_read_match(path, each) for each in raw["match"]]
    plain = {
        **{key: raw[key] for key in ("id", "title", "category", "role", "explain", "cause", "limits")},
        "fix": list(raw["fix"]),
        "verify": raw.get("verify"),
        "establishes": establishes,
        "missing": missing,
        **{key: list(raw.get(key, [])) for key in ("narrows", "related", "references")},
        "matches": matches,
        **_read_examples(path, raw),
    }
    known = {*TEXTS, *LISTS, *TABLES, "establishes"}
    _demand(path, set(raw) <= known, f"unknown keys: {', '.join(sorted(set(raw) - known))}")
    return plain


def _demand_shapes(path: str, raw: dict[str, Any]) -> None:
    """Each key holds the kind of value that it must hold; what is read after this needs no further guard."""
    for key in TEXTS:
        _demand(path, isinstance(raw.get(key, ""), str), f"{key} must be a text")
    for key in LISTS:
        listed = raw.get(key, [])
        _demand(
            path, isinstance(listed, list) and all(isinstance(each, str) for each in listed), f"{key}: a list of texts"
        )
    for key in TABLES:
        tables = raw.get(key, [])
        of_tables = isinstance(tables, list) and all(isinstance(each, dict) for each in tables)
        _demand(path, of_tables, f"{key} must be written as [[{key}]]")
        if key in ("sample", "near_miss"):
            _demand(path, all(isinstance(each.get("text"), str) for each in tables), f"[[{key}]] needs its text")


def _read_match(path: str, raw: dict[str, Any]) -> list[Any]:
    patterns = [raw.get(key) for key in ("exception", "message", "line", "text", "frame")]
    unknown = set(raw) - {"exception", "message", "line", "text", "frame", "exit", "literal", "rank"}
    _demand(path, not unknown, f"unknown keys in [[match]]: {', '.join(sorted(unknown))}")
    for pattern in filter(None, patterns):
        for fault in pattern_faults(pattern):
            raise LibraryError(f"{path}: {fault}: {pattern}")
    codes, literal = list(raw.get("exit", [])), list(raw.get("literal", []))
    _demand(path, any(patterns) or bool(codes), "a [[match]] without a pattern")
    if not codes:
        _demand(path, bool(literal), "a [[match]] needs the literal that its texts hold")
        short = [each for each in literal if len(each.encode()) < MIN_LITERAL]
        _demand(path, not short, f"literals shorter than {MIN_LITERAL} bytes: {short}")
    return [*patterns, codes, literal, raw.get("rank")]


def _read_prefix(path: str) -> dict[str, Any]:
    raw = _read_toml(path)
    name = os.path.basename(path)[:-5]
    _demand(path, raw.get("id") == name, f"id must be the file's name, {name}")
    for key in ("title", "order", "pattern", "limits"):
        _demand(path, bool(raw.get(key)), f"{key} is missing")
    for fault in pattern_faults(raw["pattern"]):
        raise LibraryError(f"{path}: {fault}: {raw['pattern']}")
    keys = ("id", "title", "order", "pattern", "limits")
    unknown = set(raw) - {*keys, "literal", "sample", "near_miss"}
    _demand(path, not unknown, f"unknown keys: {', '.join(sorted(unknown))}")
    return {**{key: raw[key] for key in keys}, "literal": raw.get("literal", ""), **_read_examples(path, raw)}


def _read_examples(path: str, raw: dict[str, Any]) -> dict[str, Any]:
    _demand(path, bool(raw.get("sample")), "[[sample]] is missing")
    _demand(path, bool(raw.get("near_miss")), "[[near_miss]] is missing")
    samples = [[each["text"], each.get("captures", {}), each.get("version")] for each in raw["sample"]]
    for each in raw["near_miss"]:
        _demand(path, bool(each.get("why")), "a [[near_miss]] needs its why")
    near_misses = [[each["text"], each["why"], each.get("is")] for each in raw["near_miss"]]
    return {"samples": samples, "near_misses": near_misses}


def _demand(path: str, holds: bool, fault: str) -> None:
    if not holds:
        raise LibraryError(f"{path}: {fault}")


def pattern_faults(pattern: str) -> Iterator[str]:
    """Why a pattern could run away on a long line: it leads with a repeat, nests repeats, or has two unbounded ones."""
    try:
        re.compile(pattern)
    except re.error as error:
        yield f"not a pattern ({error})"
        return
    if re.match(r"\(?(?:\?:)?\.[*+]", pattern):
        yield "leads with an unbounded repeat"
    if _NESTED.search(pattern):
        yield "repeats a repeat"
    if len(_UNBOUNDED.findall(pattern)) > 1:
        yield "more than one unbounded repeat; write {0,200}"
