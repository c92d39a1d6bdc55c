"""How far a long run has come, on one line of a terminal that goes away again. Elsewhere nothing is printed."""

import time
from typing import IO

_PATIENCE = 0.5  # seconds until something is said at all
_PACE = 0.1


class Progress:
    def __init__(self, stream: IO[str] | None) -> None:
        self._stream = stream if stream is not None and stream.isatty() else None
        self._next = time.monotonic() + _PATIENCE
        self._shown = False

    def __call__(self, done: int, of: int) -> None:
        if self._stream is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PACE
        self._stream.write(f"\r\x1b[KChecked {done:,} of {of:,} files")
        self._stream.flush()
        self._shown = True

    def clear(self) -> None:
        if self._stream is not None and self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False
