"""End with the editor: its standard input closes, or, where something else holds that open, its process is gone."""

import os
import threading
import time
from collections.abc import Callable

INTERVAL = 2.0


def watch(process_id: int, clear: Callable[[], None]) -> None:
    """Clear up and leave when the process has gone. One that cannot be seen (another container) is not watched."""
    if process_id > 0 and is_alive(process_id):
        threading.Thread(target=_wait, args=(process_id, clear), name="parent", daemon=True).start()


def is_alive(process_id: int) -> bool:
    if os.name == "nt":
        return _is_alive_on_windows(process_id)
    try:
        os.kill(process_id, 0)  # Signal 0 is none; only the error tells.
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _wait(process_id: int, clear: Callable[[], None]) -> None:
    while is_alive(process_id):
        time.sleep(INTERVAL)
    clear()
    os._exit(1)  # Nothing is left to save, and a thread that waits for standard input would hold up an orderly end.


def _is_alive_on_windows(process_id: int) -> bool:
    import ctypes

    synchronize, timed_out = 0x00100000, 0x102
    kernel = ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]
    handle = kernel.OpenProcess(synchronize, False, process_id)
    if not handle:
        return False
    try:
        return bool(kernel.WaitForSingleObject(handle, 0) == timed_out)
    finally:
        kernel.CloseHandle(handle)
