"""What every command says to the terminal, and how: any text on any encoding, colours only where they are seen."""

import os
import sys
from typing import IO


def write(text: str) -> None:
    """Any text on any terminal: what its encoding lacks is replaced rather than refused."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))


def refuse(message: str) -> int:
    """Say why nothing was done; the answer is the exit status."""
    print(f"firstfault: {message}", file=sys.stderr)
    return 2


def has_colour(stream: IO[str]) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
