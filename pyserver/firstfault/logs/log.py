"""The values of a read log: lines on streams, exceptions with their chains, torchrun's failure table.

Numbers of lines count from 1 and end at ``\\n`` only. ``raw`` is always a part of the source, word for word.
"""

from typing import Literal, NamedTuple

from firstfault.logs.recorder import Dump

Link = Literal["cause", "context", "group", "wrapped"]
Origin = Literal["traceback", "bare", "fatal", "terminate", "table"]


class Tags(NamedTuple):
    """What a line's prefixes tell. Global rank, local rank, host and pid are different things; none is guessed here.

    ``label`` is a launcher's or logger's own name for the writer; it tells writers apart and says no more.
    ``recorded`` is the time of a record that wraps the line; every line of a message has one.
    """

    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    device: int | None = None
    time: str | None = None
    source: str | None = None
    label: str | None = None
    recorded: str | None = None


class Line(NamedTuple):
    """One piece of a source line: a progress bar's frame, or what was glued behind it, is a piece of its own.

    ``order`` counts the pieces of all files in reading order; ``stream`` numbers the writer (see ``Stream``).
    """

    order: int
    file: int
    number: int
    raw: str
    text: str
    tags: Tags
    stream: int


class Stream(NamedTuple):
    """One writer as far as the text tells it apart: a rank, a local rank of a host, or "the rest of this file"."""

    file: int
    rank: int | None
    local_rank: int | None
    host: str | None
    attempt: int | None


class FrameLine(NamedTuple):
    file: str
    line: int
    function: str
    at: Line


class Block(NamedTuple):
    """One traceback of a chain. ``type`` is empty where the text ends before the exception's own line.

    ``spoken`` holds the line of each line of ``message``. ``link`` says how this block leads to the next one: it was
    its direct cause, its context ("during handling"), a member of its group, or the inner exception that it wraps.
    """

    type: str
    message: str
    frames: tuple[FrameLine, ...]
    at: Line
    lines: tuple[Line, ...]
    spoken: tuple[Line, ...]
    link: Link | None


class Raised(NamedTuple):
    """One exception as it left a process or was printed, with the whole chain, first block first."""

    blocks: tuple[Block, ...]
    stream: int
    origin: Origin
    ignored: bool
    thread: str | None


class Row(NamedTuple):
    """One entry of torchrun's failure table. ``root`` marks the entry that the table calls the root cause."""

    rank: int
    local_rank: int | None
    host: str | None
    time: str | None
    exitcode: int
    pid: int | None
    error_file: bool
    signal_text: str | None
    root: bool
    table: int
    lines: tuple[Line, ...]
    error: Block | None


class Exit(NamedTuple):
    """What an agent says of its first failing process; signals are negative codes."""

    code: int
    local_rank: int | None
    pid: int
    at: Line


class FileRead(NamedTuple):
    name: str
    lines: int
    bytes: int


class Log(NamedTuple):
    files: tuple[FileRead, ...]
    streams: tuple[Stream, ...]
    lines: tuple[Line, ...]
    raised: tuple[Raised, ...]
    rows: tuple[Row, ...]
    exits: tuple[Exit, ...]
    closed_pids: frozenset[int]
    problems: tuple[str, ...]
    dumps: tuple[Dump, ...] = ()
