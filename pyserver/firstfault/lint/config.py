"""What a project says about its own check: ``[tool.firstfault]`` in the nearest ``pyproject.toml``.

The editor's settings have the same meaning under other names; ``Config.over`` joins the two.
"""

import os
import re
import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, NamedTuple

from firstfault.lint.facts import Facts
from firstfault.lint.gitignore import Patterns, is_left_out, patterns_of
from firstfault.lint.rule import Finding, Severity, all_rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "pyproject.toml"
SYNTAX_ERROR, UNUSED_IGNORE = "syntax-error", "unused-ignore"
KEYS = ("select", "ignore", "exclude", "severity", "variable-length", "grad-accumulation")
_SEVERITIES = ("error", "warning", "hint")
_ALL = "all"


class ConfigError(ValueError):
    """A setting that cannot be followed; says where it stands, and what was probably meant."""


class Config(NamedTuple):
    """Selectors are codes, names, or beginnings of codes (``GA2``), in small letters; ``all`` is every rule."""

    select: frozenset[str] | None = None  # None: every rule
    ignore: frozenset[str] = frozenset()
    exclude: tuple[tuple[str, str], ...] = ()  # the folder that a pattern counts from, and the pattern
    severity: tuple[tuple[str, Severity], ...] = ()
    facts: Facts = Facts()

    def allows(self, code: str, name: str) -> bool:
        """What is no rule (a text that does not parse) is shown unless it is ignored by its name."""
        if _matches(self.ignore, code, name):
            return False
        return self.select is None or code in (SYNTAX_ERROR, UNUSED_IGNORE) or _matches(self.select, code, name)

    def graded(self, finding: Finding) -> Finding:
        """A finding with the severity that the project gives to its rule; the longest selector decides."""
        given = [each for each in self.severity if _matches((each[0],), finding.code, finding.name)]
        return finding._replace(severity=max(given, key=lambda each: len(each[0]))[1]) if given else finding

    def leaves_out(self, path: str, is_folder: bool = False) -> bool:
        """Whether ``exclude`` speaks of a path, or of a folder that it lies in."""
        path = os.path.abspath(path)
        for patterns in _patterns(self.exclude) if self.exclude else ():
            root = patterns.folder
            if path.startswith(root.rstrip(os.sep) + os.sep):
                steps = os.path.relpath(path, root).split(os.sep)
                parts = [os.path.join(root, *steps[: end + 1]) for end in range(len(steps))]
                if any(is_left_out(each, each != path or is_folder, (patterns,)) for each in parts):
                    return True
        return False

    def over(self, project: "Config") -> "Config":
        """These settings (an editor's, a command line's) before a project's: they win, lists are joined."""
        mine, theirs = self.facts, project.facts
        accumulation = theirs.grad_accumulation if mine.grad_accumulation is None else mine.grad_accumulation
        return Config(
            project.select if self.select is None else self.select,
            project.ignore | self.ignore,
            (*project.exclude, *self.exclude),
            tuple({**dict(project.severity), **dict(self.severity)}.items()),
            Facts(theirs.variable_length if mine.variable_length is None else mine.variable_length, accumulation),
        )


def project_config(path: str) -> Config:
    """The settings of the nearest ``pyproject.toml`` with a table for us, above a path. Raises ConfigError."""
    folder = os.path.abspath(path)
    while True:
        file = os.path.join(folder, FILE)
        try:
            state = os.stat(file)
        except OSError:
            state = None
        found = _read(file, state.st_mtime_ns, state.st_size) if state is not None else None
        if found is not None:
            return found
        parent = os.path.dirname(folder)
        if parent == folder:
            return Config()
        folder = parent


def config_of(table: Mapping[str, Any], where: str, root: str = "") -> Config:
    """The settings of a table. Raises ConfigError."""
    for key in table:
        if key not in KEYS:
            raise ConfigError(f"{where}: there is no setting {key!r}.{_near(key, KEYS)}")
    select = table.get("select")
    return Config(
        None if select is None else selectors(select, f"{where}: select"),
        selectors(table.get("ignore", []), f"{where}: ignore"),
        tuple((root, each) for each in _texts(table.get("exclude", []), f"{where}: exclude")),
        _severities(table.get("severity", {}), f"{where}: severity"),
        Facts(_truth(table, "variable-length", where), _count(table, "grad-accumulation", where)),
    )


def selectors(value: object, where: str) -> frozenset[str]:
    """Codes, names and beginnings of codes, each of which stands for at least one rule. Raises ConfigError."""
    given = [each.strip() for each in _texts(value, where)]
    for each in given:
        if not each or not is_known(each.lower()):
            raise ConfigError(f"{where}: there is no rule {each!r}.{near_rule(each)}")
    return frozenset(each.lower() for each in given)


def is_known(selector: str) -> bool:
    extra = selector in (_ALL, SYNTAX_ERROR, UNUSED_IGNORE)
    return extra or any(_matches((selector.lower(),), each.code, each.name) for each in all_rules())


def near_rule(selector: str) -> str:
    """The name that was probably meant, as a question. Of codes each is as near as the next: none is guessed."""
    if re.fullmatch(r"[A-Za-z]*\d+", selector):
        return " `firstfault explain --list` names all."
    return _near(selector.lower(), [rule.name for rule in all_rules()])


def _matches(wanted: Iterable[str], code: str, name: str) -> bool:
    code = code.lower()
    return any(each in (_ALL, name) or (code.startswith(each) and code not in _NAMED) for each in wanted)


_NAMED = (SYNTAX_ERROR, UNUSED_IGNORE)  # they have no code of which there could be a beginning


def _near(word: str, known: Iterable[str]) -> str:
    found = get_close_matches(word.replace("_", "-"), list(known), 1, 0.6)
    if not found:
        return ""
    return f" Did you mean {found[0]}?"


@lru_cache(maxsize=64)
def _read(file: str, changed: int, size: int) -> Config | None:
    """One file at one state, or None where it says nothing about us: then the next one above counts."""
    try:
        with open(file, "rb") as stream:
            data = stream.read()
        table = tomllib.loads(data.decode("utf-8")) if b"firstfault" in data else {}
    except OSError:
        return None
    except ValueError as error:  # TOML and UTF-8 alike
        raise ConfigError(f"{file}: it is no TOML: {error}.") from None
    tool = table.get("tool")
    own = tool.get("firstfault") if isinstance(tool, dict) else None
    if own is None:
        return None
    where = f"{file}: [tool.firstfault]"
    if not isinstance(own, dict):
        raise ConfigError(f"{where}: it must be a table.")
    return config_of(own, where, os.path.dirname(file))


@lru_cache(maxsize=64)
def _patterns(exclude: tuple[tuple[str, str], ...]) -> tuple[Patterns, ...]:
    """By the folder that they count from."""
    roots = dict.fromkeys(root for root, _ in exclude)
    found = (patterns_of([line for root, line in exclude if root == each], os.path.abspath(each)) for each in roots)
    return tuple(each for each in found if each is not None)


def _texts(value: object, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ConfigError(f"{where}: it must be a list of strings.")
    return value


def _severities(value: object, where: str) -> tuple[tuple[str, Severity], ...]:
    if not isinstance(value, dict):
        raise ConfigError(f'{where}: it must be a table such as {{ GA101 = "warning" }}.')
    selectors(list(value), where)
    for name, severity in value.items():
        if severity not in _SEVERITIES:
            raise ConfigError(f"{where}: {name} must be error, warning or hint, not {severity!r}.")
    return tuple((name.lower(), severity) for name, severity in value.items())


def _truth(table: Mapping[str, Any], key: str, where: str) -> bool | None:
    value = table.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise ConfigError(f"{where}: {key} must be true or false, not {value!r}.")


def _count(table: Mapping[str, Any], key: str, where: str) -> int | None:
    value = table.get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise ConfigError(f"{where}: {key} must be a whole number from 1, not {value!r}.")
