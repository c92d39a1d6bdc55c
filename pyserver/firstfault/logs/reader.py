"""Reads sources into a Log: two stages for large inputs, one for small ones."""

import os
import re
from collections.abc import Sequence
from itertools import groupby

from firstfault.library import Prefix
from firstfault.logs import scan
from firstfault.logs.lines import Cleaner
from firstfault.logs.log import FileRead, Line, Log, Raised, Row, Tags
from firstfault.logs.recorder import LARGEST, Dump, looks_like_dump, read_dump
from firstfault.logs.scan import Counter
from firstfault.logs.source import Source, Unreadable, chunks
from firstfault.logs.torchrun import exits_in, rows_in
from firstfault.logs.tracebacks import raised_in
from firstfault.patterns import Gated, gated

HEAD = 4096
# torchrun's log folders are numbered by LOCAL rank; a file's own name may name a host or a rank.
ATTEMPT_FOLDER = gated(r"attempt_(?P<attempt>\d+)[\\/](?P<local_rank>\d+)[\\/][^\\/]+$", "attempt_")
RANK_FILE = gated(r"(?i)(?:global_?)?rank[_.-]?(?P<rank>\d{1,6})(?:[._-].*)?$", "rank", "Rank", "RANK")
RANK_IN_NAME = gated(r"(?i)(?:.*[_.-])?(?:global_?)?rank[_.-]?(?P<rank>\d{1,6})(?:[._-].*)?$", "rank", "Rank", "RANK")


def read_sources(sources: Sequence[Source], prefixes: Sequence[Prefix]) -> Log:
    cleaner = Cleaner(prefixes)
    files: list[FileRead] = []
    lines: list[Line] = []
    problems: list[str] = []
    unread = 0
    ranked = RANK_IN_NAME if _one_file_a_rank(sources) else RANK_FILE
    dumps: list[Dump] = []
    job = scan.Job(sources)
    for number, source in enumerate(sources):
        counter = Counter(job)
        dump = dump_of(source)
        if dump is not None:
            dumps.append(dump)
            files.append(FileRead(source.name, 0, os.path.getsize(source.path or "")))
            continue
        place, attempt = _place(source, ranked)
        try:
            lines += cleaner.lines(number, scan.worth_reading(chunks(source, problems), counter), place, attempt)
        except Unreadable as error:
            problems.append(str(error))
            unread += 1
        files.append(FileRead(source.name, counter.lines, counter.bytes))
    if unread and unread == len(sources):
        raise Unreadable(" ".join(problems))
    raised, rows = _records(lines)
    exits, closed = exits_in(lines)
    return Log(
        tuple(files), tuple(cleaner.streams), tuple(lines), tuple(raised), tuple(rows), tuple(exits), frozenset(closed),
        tuple(problems), tuple(dumps),
    )  # fmt: skip


def dump_of(source: Source) -> Dump | None:
    """The Flight Recorder dump in a file that begins like one."""
    if source.path is None:
        return None
    try:
        with open(source.path, "rb") as file:
            head = file.read(HEAD)
            if not looks_like_dump(head) or os.path.getsize(source.path) > LARGEST:
                return None
            return read_dump(os.path.basename(source.path), head + file.read())
    except OSError:
        return None  # The careful reader says what is wrong with it.


def _one_file_a_rank(sources: Sequence[Source]) -> bool:
    """Several files whose names differ in the number of a rank only; one such name alone may mean anything."""
    names = [os.path.basename(source.path or "") for source in sources]
    return len(names) > 1 and len({re.sub(r"\d+", "", name) for name in names}) == 1


def _place(source: Source, ranked: Gated) -> tuple[Tags, int | None]:
    found = ATTEMPT_FOLDER.search(source.path or "")
    if found:
        return Tags(local_rank=int(found["local_rank"])), int(found["attempt"])
    named = ranked.match(os.path.basename(source.path or ""))
    return Tags(rank=int(named["rank"])) if named else Tags(), None


def _records(lines: list[Line]) -> tuple[list[Raised], list[Row]]:
    raised: list[Raised] = []
    rows: list[Row] = []
    by_stream = sorted(lines, key=lambda line: (line.stream, line.order))
    for _, group in groupby(by_stream, key=lambda line: line.stream):
        own = list(group)
        table, taken = rows_in(own)
        rows += table
        raised += raised_in([line for line in own if line.order not in taken])
    raised.sort(key=lambda each: each.blocks[-1].at.order)
    rows.sort(key=lambda row: row.lines[0].order)
    return raised, rows
