"""Where text comes from: a selection, files, folders, standard input; plain or gzip, in any usual encoding.

A source is read in chunks, turned into UTF-8 where it is something else, never as a whole. What cannot be read as text
raises ``Unreadable`` with a sentence for the user.
"""

import codecs
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import IO, NamedTuple

from firstfault.patterns import gated

CHUNK = 1 << 18
GZIP_MAGIC = b"\x1f\x8b"
# In a folder, files with these endings hold no log text; named on the command line, any file is tried.
NOT_LOGS = gated(
    r"\.(?:pt|pth|bin|safetensors|ckpt|npy|npz|pkl|png|jpe?g|gif|pdf|zip|tar|whl|so|pyc?|ipynb|onnx|parquet|arrow|h5|db|mp4"
    r"|wav|ya?ml|toml|csv|tsv|md|cfg|ini|sh)$",
    flags=re.IGNORECASE,
)
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))

_PACKED = (
    (b"\xfd7zXZ\0", "xz", "xz -dc"),
    (b"BZh", "bzip2", "bzip2 -dc"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd -dc"),
    (b"PK\x03\x04", "zip", "unzip -p"),
)


class Unreadable(ValueError):
    """A source that is missing, not a file, or not text; the message is a sentence for the user."""


class Source(NamedTuple):
    """A named text: ``text`` for a selection, ``path`` for a file, ``stream`` for standard input."""

    name: str
    path: str | None = None
    text: str | None = None
    stream: IO[bytes] | None = None


def from_text(text: str, name: str) -> Source:
    return Source(name, text=text)


def from_paths(paths: Iterable[str]) -> list[Source]:
    """The files at these paths, folders walked in a stable order. Raises Unreadable for a path that is not there."""
    found: list[Source] = []
    for path in paths:
        if os.path.isdir(path):
            found += [Source(each, path=each) for each in _files_below(path)]
        elif os.path.isfile(path):
            found.append(Source(path, path=path))
        elif os.path.exists(path):
            raise Unreadable(
                f"{path} is neither a file nor a folder. A pipe is read so: COMMAND | firstfault diagnose -"
            )
        else:
            raise Unreadable(f"There is no file or folder {path or repr(path)}.")
    if not found:
        raise Unreadable(f"No log file in {', '.join(paths)}.")
    return found


def _files_below(folder: str) -> list[str]:
    found: list[str] = []

    def unreadable(error: OSError) -> None:
        found.append(str(error.filename))  # Reading it will say why.

    for parent, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths = [os.path.join(parent, name) for name in sorted(names) if _may_be_log(name)]
        found += [path for path in paths if os.path.isfile(path)]  # A pipe would never end.
    return found


def _may_be_log(name: str) -> bool:
    return not name.startswith(".") and not NOT_LOGS.search(name)


def chunks(source: Source, problems: list[str]) -> Iterator[tuple[bytes, int]]:
    """The text as UTF-8 in pieces, each with the number of bytes read for it. Raises Unreadable for what is no text.

    What ends too early, such as a packed file that is being copied, is read as far as it goes; ``problems`` say so.
    """
    if source.text is not None:
        data = source.text.encode("utf-8", "replace")
        yield data, len(data)
        return
    read = 0
    try:
        with _opened(source) as file:
            for data, size in _as_utf8(file, source.name):
                read += size
                yield data, size
    except (OSError, EOFError, zlib_error()) as error:
        reason = getattr(error, "strerror", None) or str(error).rstrip(".")
        if not read:
            raise Unreadable(f"{source.name} could not be read: {reason}.") from error
        problems.append(f"{source.name} is cut: it was read up to {read:,} bytes of text ({reason}).")


def zlib_error() -> type[Exception]:
    """What a broken gzip file raises besides OSError; zlib is loaded only if a gzip file was."""
    module = sys.modules.get("zlib")
    return module.error if module is not None else OSError


def _opened(source: Source) -> IO[bytes]:
    if source.stream is not None:
        return _unpacked(source.stream)
    assert source.path is not None
    file = open(source.path, "rb")  # noqa: SIM115 - the caller closes it
    if file.read(2) == GZIP_MAGIC:
        import gzip

        file.close()
        return gzip.open(source.path)  # type: ignore[return-value]
    file.seek(0)
    return file


def _unpacked(stream: IO[bytes]) -> IO[bytes]:
    peek = getattr(stream, "peek", None)
    if peek is None or peek(2)[:2] != GZIP_MAGIC:
        return stream
    import gzip

    return gzip.open(stream)  # type: ignore[return-value]


def _as_utf8(file: IO[bytes], name: str) -> Iterator[tuple[bytes, int]]:
    # Of a packed file that is cut, a read of a fixed size would lose what comes before the cut.
    packed = type(file).__name__ == "GzipFile"
    read = file.read1 if packed else file.read  # type: ignore[attr-defined]
    first = read(CHUNK)
    encoding = _encoding(first, name)
    if encoding == "utf-8":
        data = first
        while data:
            yield data, len(data)
            data = read(CHUNK)
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    data = first
    while data:
        yield decoder.decode(data).encode("utf-8", "replace"), len(data)
        data = read(CHUNK)
    yield decoder.decode(b"", final=True).encode("utf-8", "replace"), 0


def _encoding(head: bytes, name: str) -> str:
    for mark, encoding in _BOMS:
        if head.startswith(mark):
            return encoding
    for magic, kind, command in _PACKED:
        if head.startswith(magic):
            raise Unreadable(f"{name} is packed with {kind}. Unpack it first: {command} {name} | firstfault diagnose -")
    head = head[:4096].rstrip(b"\0") or head  # A node that died may leave NULs where the log's end should be.
    nuls = head[:4096].count(0)
    if nuls * 3 > len(head[:4096]) and head[1:4096:2].count(0) > nuls * 0.8:
        return "utf-16-le"  # What `>` of an older PowerShell writes, with its mark cut off.
    if nuls * 3 > len(head[:4096]) and head[0:4096:2].count(0) > nuls * 0.8:
        return "utf-16-be"
    if nuls * 20 > len(head[:4096]) or _control_share(head[:4096]) > 0.05:
        raise Unreadable(f"{name} is a binary file, not a log.")
    return "utf-8"


def _control_share(head: bytes) -> float:
    """Control bytes that no log holds; single NULs do occur, where a worker died while printing."""
    if not head:
        return 0.0
    usual = bytes(range(7, 14)) + b"\x1b\x00"
    controls = bytes(each for each in range(32) if each not in usual) + b"\x7f"
    return sum(head.count(each) for each in controls) / len(head)
