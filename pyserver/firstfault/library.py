"""The signatures of ``signatures/``: what is known of a failure, and how its text is recognised.

One TOML file is one failure (``signatures/failures/<category>/<id>.toml``) or one log prefix
(``signatures/prefixes/<id>.toml``). ``signature_files`` reads and checks them; a file without a sample and a near miss
is refused. ``load`` answers from the compiled form, a JSON file: reading hundreds of TOML files would be the slowest
part of a diagnosis. A checkout compiles anew when a file has changed; a wheel carries ``firstfault/signatures/``.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

Role = Literal["initiating", "either", "collateral", "silent"]
ROLES = ("initiating", "either", "collateral", "silent")

PACKAGED = os.path.join(os.path.dirname(__file__), "signatures")
CHECKOUT = os.path.normpath(os.path.join(os.path.dirname(__file__), "..", "..", "signatures"))

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z{])")
_OPTIONAL = re.compile(r"\[\[(.+?)\]\]", re.DOTALL)
_HEAD = 4  # characters of a literal that are looked up before the literal is searched for


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

    @property
    def samples(self) -> tuple[Sample, ...]:
        return tuple(Sample(*each) for each in _examples(self.id)["samples"])

    @property
    def near_misses(self) -> tuple[NearMiss, ...]:
        return tuple(NearMiss(*each) for each in _examples(self.id)["near_misses"])


class Prefix(NamedTuple):
    """What a launcher or logger puts before a line. ``pattern`` is anchored at the line's start.

    Its named groups say what the prefix tells: ``rank`` (global), ``local_rank``, ``task``, ``host``, ``pid``,
    ``time``, ``attempt``, ``level``, ``source``. ``order`` decides which prefix is tried first. Where ``literal`` is
    not empty, every line with this prefix holds it; where ``starts`` is not empty, a line with it that begins with an
    ASCII character begins with one of these: two quick tests before the pattern.
    """

    id: str
    title: str
    order: int
    pattern: str
    literal: str
    starts: str
    limits: str
    samples: tuple[Sample, ...]
    near_misses: tuple[NearMiss, ...]


class Signatures(Mapping[str, Signature]):
    """All signatures by id; each is made from its JSON when it is first asked for."""

    def __init__(self, packed: list[list[Any]]) -> None:
        self._texts = {id_: text for id_, _, _, text in packed}
        self._gates = [(id_, literals) for id_, literals, _, _ in packed]
        self._codes = [id_ for id_, _, codes, _ in packed if codes]
        self._made: dict[str, Signature] = {}

    def __getitem__(self, id_: str) -> Signature:
        if id_ not in self._made:
            self._made[id_] = _signature(json.loads(self._texts[id_]))
        return self._made[id_]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def holding(self, text: str) -> list[Signature]:
        """Those one of whose literals stands in the text: no other can match it by its words."""
        heads = {text[at : at + _HEAD] for at in range(len(text) - _HEAD + 1)}  # one walk in the place of hundreds
        return [
            self[id_]
            for id_, literals in self._gates
            if any((each[:_HEAD] in heads or len(each) < _HEAD) and each in text for each in literals)
        ]

    def with_exit_codes(self) -> list[Signature]:
        return [self[id_] for id_ in self._codes]


class Library(NamedTuple):
    signatures: Signatures
    prefixes: tuple[Prefix, ...]


@cache
def load() -> Library:
    """The library of this installation. Raises LibraryError where a signature file of the checkout is refused."""
    return _from_plain(_compiled("library.json"))


@cache
def table(name: str) -> dict[str, Any]:
    """A table of ``signatures/`` that rules read: ``trainers``, ``models``. Apart, because no diagnosis needs it."""
    return dict(_compiled("tables.json")["tables"].get(name, {}))


@cache
def _all_examples() -> dict[str, Any]:
    """Samples and near misses by id; in a file of their own, because no diagnosis needs them."""
    return dict(_compiled("examples.json")["examples"])


def _examples(id_: str) -> dict[str, Any]:
    return dict(_all_examples()[id_])


def fill(template: str, values: dict[str, str]) -> str:
    """The template with its ``{captures}``; a part in ``[[...]]`` is left out where one of its values is not known.

    A sentence that lacks a value outside of brackets is dropped whole: better silent than with a hole in it. Values
    go in last, so that a full stop or a brace within one is never taken for the template's own.
    """
    kept = _OPTIONAL.sub(lambda part: part[1] if _known(part[1], values) else "", template)
    if not _known(kept, values):
        kept = " ".join(each for each in _SENTENCE_END.split(kept) if _known(each, values))
    return _PLACEHOLDER.sub(lambda name: values[name[1]], kept)


def _known(template: str, values: dict[str, str]) -> bool:
    return all(name in values for name in _PLACEHOLDER.findall(template))


# ------------------------------------------------------------------------------------------ compiled form


def _compiled(name: str) -> dict[str, Any]:
    """A compiled file: of the package, or of the cache, made anew there where the checkout has changed."""
    if os.path.isfile(os.path.join(PACKAGED, name)) or not os.path.isdir(CHECKOUT):
        return _read_text(os.path.join(PACKAGED, name))
    stamp = _stamp(CHECKOUT)
    try:
        cached = _read_text(os.path.join(_cache_folder(), name))
        if cached["stamp"] == stamp:
            return cached
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # No cache yet, or a half-written one: it is made again below.
    from firstfault.signature_files import compile_library

    files = {each: {"stamp": stamp, **plain} for each, plain in compile_library(CHECKOUT).items()}
    for each, plain in files.items():
        _write_whole(os.path.join(_cache_folder(), each), to_text(plain))
    return files[name]


def to_text(plain: dict[str, Any]) -> str:
    """A compiled file's text: a line of JSON, and then a line for each failure, which stays text until it is needed."""
    failures = plain.get("failures", [])
    head = {**plain, "failures": [each[:3] for each in failures]} if failures else plain
    return "\n".join([json.dumps(head), *(each[3] for each in failures)])


def _read_text(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        head, *bodies = file.read().split("\n")
    plain: dict[str, Any] = json.loads(head)
    for gate, body in zip(plain.get("failures", []), bodies, strict=True):
        gate.append(body)
    return plain


def is_signature_file(name: str) -> bool:
    """An editor's lock files and back-ups lie beside the real ones."""
    return name.endswith(".toml") and not name.startswith(".")


def _stamp(directory: str) -> str:
    """Changes with every file of the checkout, and with this room's own form of the cache."""
    from zlib import crc32

    files = sorted(_signature_files(directory))
    newest = max((changed for _, changed, _ in files), default=0)
    return f"{os.stat(__file__).st_mtime_ns} {directory} {len(files)} {newest} {crc32(repr(files).encode()):08x}"


def _signature_files(folder: str) -> Iterator[tuple[str, int, int]]:
    """Name, time of the last change and size of each; a walk of its own, which costs half of ``os.walk``."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_signature_file(entry.name):
                status = entry.stat()
                yield entry.path, status.st_mtime_ns, status.st_size
            elif "." not in entry.name and entry.is_dir():
                yield from _signature_files(entry.path)


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


def _from_plain(plain: dict[str, Any]) -> Library:
    return Library(Signatures(plain["failures"]), tuple(_prefix(each) for each in plain["prefixes"]))


def _signature(plain: dict[str, Any]) -> Signature:
    values: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in plain.items()}
    values["missing"] = tuple(MissingFact(*each) for each in plain["missing"])
    values["matches"] = tuple(_match(each) for each in plain["matches"])
    return Signature(**values)


def _prefix(plain: dict[str, Any]) -> Prefix:
    samples = tuple(Sample(*each) for each in plain["samples"])
    near_misses = tuple(NearMiss(*each) for each in plain["near_misses"])
    return Prefix(**{**plain, "samples": samples, "near_misses": near_misses})


def _match(plain: list[Any]) -> Match:
    exception, message, line, text, frame, codes, literal, rank = plain
    return Match(exception, message, line, text, frame, tuple(codes), tuple(literal), rank)
