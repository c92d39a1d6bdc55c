"""Bytes of a script -> its text, as Python itself would decode it. What is no text is refused with a reason."""

import codecs
import re

LARGEST = 20_000_000
_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK = re.compile(rb"^[ \t\f]*(?:#.*)?\r?$")


class Unreadable(Exception):
    """Why a file is not checked, in words for the user."""


def read_source(path: str) -> str:
    """The text of a file. Raises Unreadable."""
    return decode_source(read_bytes(path))


def read_bytes(path: str) -> bytes:
    """What a file holds, up to one byte more than may be. Raises Unreadable."""
    try:
        with open(path, "rb") as file:
            return file.read(LARGEST + 1)
    except OSError as error:
        raise Unreadable(f"It cannot be read: {error.strerror or error}.") from None


def encode_source(text: str, before: bytes) -> bytes:
    """A text in the encoding that the file had before. Raises Unreadable."""
    encoding = _encoding(before)
    try:
        if before.decode(encoding).encode(encoding) != before:  # a codec that is not one to one
            raise Unreadable(f"It cannot be written back as {encoding} without changing other bytes.")
        return text.encode(encoding)
    except (UnicodeError, LookupError):
        raise Unreadable(f"The fix cannot be written as {encoding}.") from None


def decode_source(data: bytes) -> str:
    """The text of these bytes. Raises Unreadable."""
    if len(data) > LARGEST:
        raise Unreadable("It is larger than 20 MB. A notebook gets smaller when its outputs are cleared.")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise Unreadable("It is UTF-16; Python reads UTF-8. Save it as UTF-8.")
    if b"\0" in data:
        raise Unreadable("It is not text: it holds null bytes.")
    encoding = _encoding(data)
    try:
        return data.decode(encoding)
    except (UnicodeError, LookupError):  # some codecs raise the wider one
        raise Unreadable(f"It does not decode as {encoding}.") from None


def _encoding(data: bytes) -> str:
    """What a coding comment in the first two lines says; else UTF-8. A byte order mark stays in the text."""
    if data.startswith(codecs.BOM_UTF8):
        return "utf-8"
    for line in data.split(b"\n", 2)[:2]:
        cookie = _COOKIE.match(line)
        if cookie:
            return cookie[1].decode("ascii", "replace")
        if not _BLANK.match(line):
            break
    return "utf-8"
