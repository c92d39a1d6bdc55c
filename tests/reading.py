"""Shorthand for tests: read a text as a log."""

from firstfault import logs
from firstfault.diagnose import diagnose
from firstfault.diagnose.report import Report
from firstfault.library import load
from firstfault.logs.log import Log, Raised
from firstfault.logs.source import from_text


def read(text: str) -> Log:
    return logs.read([from_text(text, "text")], load().prefixes)


def report_of(text: str) -> Report:
    return diagnose(read(text), load())


def raised(text: str) -> list[Raised]:
    return list(read(text).raised)


def shape(text: str) -> list[list[tuple[str, str, str | None]]]:
    """Type, first line of the message and link of each block, for each exception of the text."""
    return [[(block.type, block.message.split("\n")[0], block.link) for block in each.blocks] for each in raised(text)]
