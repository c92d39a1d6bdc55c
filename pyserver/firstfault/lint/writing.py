"""Writes a repaired file in the place of the old one: whole or not at all, with its encoding, rights and links."""

import contextlib
import os
import shutil
import tempfile

from firstfault.lint.source import Unreadable, decode_source, encode_source, read_bytes


def write_fixed(path: str, source: str, new: str) -> None:
    """Replace a file whose text is ``source`` by ``new``. Raises Unreadable where that cannot be done."""
    path = os.path.realpath(path)  # a link stays one; what it leads to is written
    before = read_bytes(path)
    if decode_source(before) != source:
        raise Unreadable("It has changed since it was checked; it is left as it is.")
    if not os.access(path, os.W_OK):
        raise Unreadable("It is write-protected; it is left as it is.")
    data = encode_source(new, before)
    try:
        _replace(path, data)
    except OSError as error:
        raise Unreadable(f"It cannot be written: {error.strerror or error}.") from None


def _replace(path: str, data: bytes) -> None:
    """A neighbour that is complete takes the file's name: no reader ever meets a half of it."""
    handle, neighbour = tempfile.mkstemp(prefix=".firstfault-", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, neighbour)
        _keep_owner(path, neighbour)
        os.replace(neighbour, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(neighbour)
        raise


def _keep_owner(path: str, neighbour: str) -> None:
    state = os.stat(path)
    if hasattr(os, "chown"):
        with contextlib.suppress(OSError):  # only root may give files away; then the writer owns it
            os.chown(neighbour, state.st_uid, state.st_gid)
