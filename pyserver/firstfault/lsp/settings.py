"""What the user has set, read leniently: a wrong value is as good as none, and a log line says so."""

import logging
from typing import Any, NamedTuple

from firstfault.lsp.protocol import SECTION

logger = logging.getLogger(__name__)


class Settings(NamedTuple):
    enabled: bool = True
    disabled_rules: frozenset[str] = frozenset()

    def allows(self, code: str, name: str) -> bool:
        return not self.disabled_rules & {code.lower(), name.lower()}


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
    enabled = _enabled(check.get("enabled", raw.get("check.enabled")))
    rules = _rules(check.get("disabledRules", raw.get("check.disabledRules")))
    return Settings(
        otherwise.enabled if enabled is None else enabled, otherwise.disabled_rules if rules is None else rules
    )


def _enabled(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    logger.warning("check.enabled must be true or false, not %r", value)
    return None


def _rules(value: Any) -> frozenset[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        logger.warning("check.disabledRules must be a list of codes or names, not %r", value)
        return None
    return frozenset(each.strip().lower() for each in value)
