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


def parse(raw: Any) -> Settings:
    """Settings from initializationOptions, from the section ``firstfault``, or from an object that holds it."""
    if not isinstance(raw, dict):
        return Settings()
    if isinstance(raw.get(SECTION), dict):
        raw = raw[SECTION]
    check = raw.get("check")
    check = check if isinstance(check, dict) else {}
    enabled = check.get("enabled", raw.get("check.enabled"))
    rules = check.get("disabledRules", raw.get("check.disabledRules"))
    return Settings(_enabled(enabled), _rules(rules))


def _enabled(value: Any) -> bool:
    if value is not None and not isinstance(value, bool):
        logger.warning("check.enabled must be true or false, not %r", value)
    return value is not False


def _rules(value: Any) -> frozenset[str]:
    if value is None:
        return frozenset()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        logger.warning("check.disabledRules must be a list of codes or names, not %r", value)
        return frozenset()
    return frozenset(each.strip().lower() for each in value)
