"""The end of what a command prints, within a bounded memory, however much it prints."""

import os
import threading
from types import TracebackType

MOST = 1 << 16  # bytes
_PATIENCE = 2.0  # seconds until what is still open is left alone


class Printed:
    """``place`` is where a command writes to: a descriptor that lives as long as the ``with`` block."""

    def __init__(self) -> None:
        self._from, self.place = os.pipe()
        self._kept = b""
        self._thread = threading.Thread(target=self._read, name="printed", daemon=True)

    def __enter__(self) -> "Printed":
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        os.close(self.place)
        self._thread.join(_PATIENCE)

    def text(self) -> str:
        """What is kept; where the beginning is lost, from the first whole line."""
        text = self._kept.decode("utf-8", "replace").replace("\r\n", "\n")
        return text.partition("\n")[2] if len(self._kept) >= MOST else text

    def _read(self) -> None:
        with os.fdopen(self._from, "rb", buffering=0) as source:
            while chunk := source.read(MOST):
                self._kept = (self._kept + chunk)[-MOST:]
