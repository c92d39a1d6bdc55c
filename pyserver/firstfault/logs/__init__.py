"""From sources to a Log: every line on its stream, exceptions and tables as values."""

from collections.abc import Sequence

from firstfault.library import Prefix
from firstfault.logs.log import Log
from firstfault.logs.source import Source


def read(sources: Sequence[Source], prefixes: Sequence[Prefix]) -> Log:
    """Read all sources as one job. What is not text is named in ``problems``; Unreadable is raised if nothing is."""
    from firstfault.logs.reader import read_sources

    return read_sources(sources, prefixes)
