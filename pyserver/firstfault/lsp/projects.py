"""What the project of a document says about its check, under what the editor says."""

import logging
import os
from functools import lru_cache
from typing import TYPE_CHECKING

from lsprotocol import types

from firstfault.lsp.settings import Settings

if TYPE_CHECKING:
    from firstfault.lint.config import Config
    from firstfault.lsp.wire import Server

logger = logging.getLogger(__name__)


def config(ls: "Server", path: str, root: str | None) -> "Config":
    """The settings of a path. A project file that cannot be followed is told once, and counts as silent."""
    from firstfault.lint.config import Config, ConfigError, project_config

    mine = _of_editor(ls.settings, root or "")
    try:
        return mine.over(project_config(os.path.dirname(path)))
    except ConfigError as error:
        _tell_once(ls, str(error))
        return mine.over(Config())


def state(path: str) -> str:
    """Names what the project files above a path say, as far as a time and a size can."""
    found, folder = [], os.path.dirname(path)
    while True:
        try:
            status = os.stat(os.path.join(folder, "pyproject.toml"))
            found.append(f"{folder} {status.st_mtime_ns} {status.st_size}")
        except (OSError, ValueError):
            pass
        above = os.path.dirname(folder)
        if above == folder:
            return " ".join(found)
        folder = above


@lru_cache(maxsize=8)
def _of_editor(settings: Settings, root: str) -> "Config":
    from firstfault.lint.config import Config
    from firstfault.lint.facts import Facts

    _warn_of_unknown(settings)
    return Config(
        settings.select,
        settings.disabled_rules,
        tuple((root, each) for each in settings.exclude),
        settings.severity,
        Facts(settings.variable_length, settings.grad_accumulation),
    )


def _warn_of_unknown(settings: Settings) -> None:
    from firstfault.lint.config import is_known, near_rule

    for each in sorted({*(settings.select or ()), *settings.disabled_rules, *(name for name, _ in settings.severity)}):
        if not is_known(each):
            logger.warning("The settings name a rule that there is not: %r.%s", each, near_rule(each))


def _tell_once(ls: "Server", message: str) -> None:
    if message not in ls.told:
        ls.told.add(message)
        logger.warning("%s", message)
        ls.window_show_message(types.ShowMessageParams(types.MessageType.Warning, f"Firstfault: {message}"))
