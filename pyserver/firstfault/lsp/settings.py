"""What the user has set, read leniently: a wrong value is as good as none, and a log line says so."""

import logging
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from firstfault.lsp.protocol import SECTION

logger = logging.getLogger(__name__)

Severity = Literal["error", "warning", "hint"]


class Settings(NamedTuple):
    """Selectors in small letters; None where the editor says nothing, so that the project's file holds."""

    enabled: bool = True
    disabled_rules: frozenset[str] = frozenset()
    select: frozenset[str] | None = None
    exclude: tuple[str, ...] = ()
    severity: tuple[tuple[str, Severity], ...] = ()
    variable_length: bool | None = None
    grad_accumulation: int | None = None


def parse(raw: Any, otherwise: Settings = Settings()) -> Settings:  # noqa: B008 (a value, not a list)
    """Settings from initializationOptions, from the section ``firstfault``, or from an object that holds it.

    What is not said there stays as in ``otherwise``.
    """
    if not isinstance(raw, dict):
        return otherwise
    if isinstance(raw.get(SECTION), dict):
        raw = raw[SECTION]
    check = raw.get("check")
    check = check if isinstance(check, dict) else {}
    said: dict[str, Any] = {}
    for name, (field, wanted, reader) in _READERS.items():
        value = check.get(name, raw.get(f"check.{name}"))
        if value is None:
            continue
        read = reader(value)
        if read is not None:
            said[field] = read
        else:
            logger.warning("check.%s must be %s, not %r", name, wanted, value)
    return otherwise._replace(**said)


def _truth(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _rules(value: Any) -> frozenset[str] | None:
    texts = _texts(value)
    return None if texts is None else frozenset(each.strip().lower() for each in texts)


def _texts(value: Any) -> tuple[str, ...] | None:
    return tuple(value) if isinstance(value, list) and all(isinstance(each, str) for each in value) else None


def _severities(value: Any) -> tuple[tuple[str, Severity], ...] | None:
    if not isinstance(value, dict) or any(each not in ("error", "warning", "hint") for each in value.values()):
        return None
    return tuple((str(rule).strip().lower(), severity) for rule, severity in value.items())


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None


_READERS: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "enabled": ("enabled", "true or false", _truth),
    "disabledRules": ("disabled_rules", "a list of codes or names", _rules),
    "select": ("select", "a list of codes or names", _rules),
    "exclude": ("exclude", "a list of patterns", _texts),
    "severity": ("severity", "an object of rules with error, warning or hint", _severities),
    "variableLength": ("variable_length", "true or false", _truth),
    "gradAccumulation": ("grad_accumulation", "a whole number from 1", _count),
}
