"""The signatures of ``signatures/``: what is known of a failure, and how its text is recognised.

One TOML file is one failure (``signatures/failures/<category>/<id>.toml``) or one log prefix
(``signatures/prefixes/<id>.toml``). ``compile_library`` reads and checks them; a file without a sample and a near miss
is refused. ``load`` answers from the compiled form, a JSON file: reading hundreds of TOML files would be the slowest
part of a diagnosis. A checkout compiles anew when a file has changed; a wheel carries ``firstfault/signatures/``.
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, NamedTuple

Role = Literal["initiating", "either", "collateral", "silent"]
ROLES = ("initiating", "either", "collateral", "silent")

PACKAGED = os.path.join(os.path.dirname(__file__), "signatures", "library.json")
CHECKOUT = os.path.normpath(os.path.join(os.path.dirname(__file__), "..", "..", "signatures"))

# Two unbounded repeats of nearly anything make a pattern quadratic on a long line; \w+ and [\d.]+ end early.
_UNBOUNDED = re.compile(r"(?:(?<!\\)\.|\\[SWD]|(?<!\\)\[\^[^\]]*\])(?:[*+]|\{\d*,\})")
_NESTED = re.compile(r"[*+}][^()|]*\)(?:[*+]|\{\d*,\})")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
MIN_LITERAL = 4


class LibraryError(ValueError):
    """A signature file that the loader refuses; says which file and why."""


class Match(NamedTuple):
    """One wording of a failure. Every pattern that is given must hold for the same event.

    ``exception`` matches the whole last part of the exception's type name (``OutOfMemoryError`` for
    ``torch.cuda.OutOfMemoryError``); ``message`` is searched in an exception's message, ``line`` in a native line,
    ``text`` in either; ``frame`` in "path:function" of any of the event's frames; ``exit`` holds exit codes,
    signals as negative numbers. Each text that can match holds one of ``literal``: the gate of the fast scan.
    ``rank`` names the only rank that runs the code which prints the text, where there is one.
    """

    exception: str | None
    message: str | None
    line: str | None
    text: str | None
    frame: str | None
    exit: tuple[int, ...]
    literal: tuple[str, ...]
    rank: int | None


class Sample(NamedTuple):
    """A text as really printed that must give this class, and values that must be captured from it."""

    text: str
    captures: dict[str, str]
    version: str | None


class NearMiss(NamedTuple):
    """A text that looks alike and must not give this class. ``is_`` names the class that it really is, if any."""

    text: str
    why: str
    is_: str | None


class MissingFact(NamedTuple):
    fact: str
    how: str


class Signature(NamedTuple):
    """One failure. ``cause``, ``fix``, ``verify`` and missing facts may hold ``{captures}``, filled by ``fill``.

    ``establishes`` is false where a match shows a symptom whose cause must be found elsewhere: then ``missing`` names
    the fact that decides. ``narrows`` names the wider classes that this one outranks where both match one event.
    """

    id: str
    title: str
    category: str
    role: Role
    explain: str
    cause: str
    fix: tuple[str, ...]
    verify: str | None
    limits: str
    establishes: bool
    missing: tuple[MissingFact, ...]
    narrows: tuple[str, ...]
    related: tuple[str, ...]
    references: tuple[str, ...]
    matches: tuple[Match, ...]
    samples: tuple[Sample, ...]
    near_misses: tuple[NearMiss, ...]


class Prefix(NamedTuple):
    """What a launcher or logger puts before a line. ``pattern`` is anchored at the line's start.

    Its named groups say what the prefix tells: ``rank`` (global), ``local_rank``, ``task``, ``host``, ``pid``,
    ``time``, ``attempt``, ``level``, ``source``. ``order`` decides which prefix is tried first.
    """

    id: str
    title: str
    order: int
    pattern: str
    limits: str
    samples: tuple[Sample, ...]
    near_misses: tuple[NearMiss, ...]


class Library(NamedTuple):
    signatures: dict[str, Signature]
    prefixes: tuple[Prefix, ...]


@cache
def load() -> Library:
    """The library of this installation. Raises LibraryError where a signature file of the checkout is refused."""
    if os.path.isdir(CHECKOUT) and not os.path.isfile(PACKAGED):
        return _from_plain(_cached(CHECKOUT))
    with open(PACKAGED, encoding="utf-8") as file:
        return _from_plain(json.load(file))


def fill(template: str, values: dict[str, str]) -> str:
    """The template with its ``{captures}``; a part in ``[[...]]`` is left out where one of its values is not known.

    A sentence that lacks a value outside of brackets is dropped whole: better silent than with a hole in it.
    """
    text = re.sub(r"\[\[(.+?)\]\]", lambda part: _filled(part[1], values) or "", template, flags=re.DOTALL)
    if all(name in values for name in _PLACEHOLDER.findall(text)):
        return _filled(text, values) or ""
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z{])", text)
    return " ".join(filter(None, (_filled(sentence, values) for sentence in sentences)))


def _filled(template: str, values: dict[str, str]) -> str | None:
    if any(name not in values for name in _PLACEHOLDER.findall(template)):
        return None
    return _PLACEHOLDER.sub(lambda name: values[name[1]], template)


# ------------------------------------------------------------------------------------------ compiled form


def compile_library(directory: str) -> dict[str, Any]:
    """All files below ``directory`` in one plain value, ready for JSON. Raises LibraryError for the first bad file."""
    failures = [_read_failure(path) for path in _toml_files(os.path.join(directory, "failures"))]
    prefixes = [_read_prefix(path) for path in _toml_files(os.path.join(directory, "prefixes"))]
    return {"failures": failures, "prefixes": sorted(prefixes, key=lambda each: (each["order"], each["id"]))}


def _cached(directory: str) -> dict[str, Any]:
    path = os.path.join(_cache_folder(), "library.json")
    stamp = _stamp(directory)
    try:
        with open(path, encoding="utf-8") as file:
            cached: dict[str, Any] = json.load(file)
        if cached["stamp"] == stamp:
            return cached
    except (OSError, ValueError, KeyError):
        pass  # No cache yet, or a half-written one: it is made again below.
    plain = {"stamp": stamp, **compile_library(directory)}
    _write_whole(path, json.dumps(plain))
    return plain


def _stamp(directory: str) -> str:
    parts = [sys.version, str(os.stat(__file__).st_mtime_ns)]
    for path in _toml_files(directory):
        status = os.stat(path)
        parts.append(f"{path}:{status.st_mtime_ns}:{status.st_size}")
    return "\n".join(parts)


def _cache_folder() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "firstfault")


def _write_whole(path: str, text: str) -> None:
    """Write so that another process never reads a half; a read-only home only costs the next start some time."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        pass


def _toml_files(directory: str) -> list[str]:
    found = []
    for folder, _, names in os.walk(directory):
        found += [os.path.join(folder, name) for name in names if name.endswith(".toml")]
    return sorted(found)


def _from_plain(plain: dict[str, Any]) -> Library:
    signatures = {each["id"]: _signature(each) for each in plain["failures"]}
    return Library(signatures, tuple(_prefix(each) for each in plain["prefixes"]))


def _signature(plain: dict[str, Any]) -> Signature:
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}
    values["missing"] = tuple(MissingFact(*each) for each in plain["missing"])
    values["matches"] = tuple(_match(each) for each in plain["matches"])
    return Signature(**_with_examples(plain, values))


def _prefix(plain: dict[str, Any]) -> Prefix:
    return Prefix(**_with_examples(plain, dict(plain)))


def _with_examples(plain: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    values["samples"] = tuple(Sample(*each) for each in plain["samples"])
    values["near_misses"] = tuple(NearMiss(*each) for each in plain["near_misses"])
    return values


def _match(plain: list[Any]) -> Match:
    exception, message, line, text, frame, codes, literal, rank = plain
    return Match(exception, message, line, text, frame, tuple(codes), tuple(literal), rank)


# ------------------------------------------------------------------------------------------ reading TOML


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
    known = {
        "id", "title", "category", "role", "explain", "cause", "fix", "verify", "limits", "establishes", "missing",
        "narrows", "related", "references", "match", "sample", "near_miss",
    }  # fmt: skip
    _demand(path, set(raw) <= known, f"unknown keys: {', '.join(sorted(set(raw) - known))}")
    return plain


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
    unknown = set(raw) - {*keys, "sample", "near_miss"}
    _demand(path, not unknown, f"unknown keys: {', '.join(sorted(unknown))}")
    return {**{key: raw[key] for key in keys}, **_read_examples(path, raw)}


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
