"""The only module that both processes share: the plan of a measurement, and the messages that come back.

The measured process appends JSON lines to a file of its own in a private temporary folder; the caller reads them when
it likes. No socket, no pickle, nothing that could block either side. Standard library only, Python >= 3.9.

Messages are dictionaries with a ``kind``:

    python    a Python process took up the probes: pid, executable, version, argv
    torch     it imported torch: version, cuda
    unfit     it cannot be measured: why
    progress  so many backward calls ran in the open window: window, backwards
    window    one optimizer window, see ``prove/record.py``
    note      something is not measured: probe, why
    replaced  the text that stands for a script was read: path
    raised    an exception ended the process: type, message, file, line
    done      all windows are measured and the process was asked to end
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

SCHEMA = 1
VARIABLE = "FIRSTFAULT_MEASURE"  # the environment variable that names the folder
_PLAN = "plan.json"
_REPLACEMENT = "replacement.txt"
_ENDING = ".jsonl"
_LONGEST = 1 << 24  # characters of one line; a longer one is garbage

Message = dict[str, Any]


class Plan(NamedTuple):
    """What is to be measured, and for whom."""

    folder: str
    windows: int = 2
    watcher: int = 0  # the process that waits for the answer; when it is gone, the measured one ends
    host: str = ""  # the host of that process: elsewhere its number means nothing
    replaces: str = ""  # the script that runs with another text; see ``prove/replacing.py``


class Process(NamedTuple):
    """What one process sent, and how many of its lines could not be read."""

    pid: int
    messages: list[Message]
    garbage: int


def this_host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")


def write_plan(plan: Plan) -> None:
    with open(os.path.join(plan.folder, _PLAN), "w", encoding="utf-8") as file:
        json.dump({"schema": SCHEMA, **plan._asdict()}, file)


def read_plan(folder: str) -> Plan | None:
    """The plan of a folder, or None where there is none that this version understands."""
    try:
        with open(os.path.join(folder, _PLAN), encoding="utf-8") as file:
            values = json.load(file)
    except (OSError, ValueError):
        return None
    if not isinstance(values, dict) or values.pop("schema", None) != SCHEMA:
        return None
    return Plan(**{name: values[name] for name in Plan._fields if name in values})


def write_replacement(folder: str, text: str) -> None:
    """In the encoding that its own first lines name."""
    import io
    import tokenize

    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(text.encode("utf-8", "replace")).readline)
    except SyntaxError:
        encoding = "utf-8"
    with open(os.path.join(folder, _REPLACEMENT), "wb") as file:
        file.write(text.encode(encoding, "backslashreplace"))


def replacement(plan: Plan) -> bytes:
    """The text that stands for the script, as it would lie on disk."""
    with open(os.path.join(plan.folder, _REPLACEMENT), "rb") as file:
        return file.read()


def sender(folder: str) -> Callable[[Message], None]:
    """A function that appends messages to the file of the process it is called in, also after a fork."""

    def send(message: Message) -> None:
        line = json.dumps(message, default=str) + "\n"
        path = os.path.join(folder, f"{os.getpid()}{_ENDING}")
        try:
            place = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError:
            return  # The folder is gone: nobody waits any more.
        try:
            os.write(place, line.encode("utf-8"))
        finally:
            os.close(place)

    return send


def received(folder: str) -> list[Process]:
    """What has arrived so far, by process. A line that is still being written waits for the next reading."""
    found = []
    for name in sorted(os.listdir(folder)):
        stem, ending = os.path.splitext(name)
        if ending == _ENDING and stem.isdigit():
            found.append(_read(os.path.join(folder, name), int(stem)))
    return found


def _read(path: str, pid: int) -> Process:
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().split("\n")[:-1]
    read = [_message(line) for line in lines]
    return Process(pid, [each for each in read if each is not None], read.count(None))


def _message(line: str) -> Message | None:
    try:
        value = json.loads(line) if len(line) < _LONGEST else None
    except ValueError:
        return None
    return value if isinstance(value, dict) and isinstance(value.get("kind"), str) else None
