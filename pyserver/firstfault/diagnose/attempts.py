"""The attempts of a job that one log shows: restarts by the launcher, and launches anew into the same log.

torchrun says that it restarts only under LOGLEVEL=INFO. Without it, its agent's own lines tell: one agent that reports
a first failing process twice has started its workers again in between, and a rank that two tables list with two pids
has been launched twice.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from firstfault.diagnose.progress import shows_progress
from firstfault.logs.log import Line, Log
from firstfault.patterns import gated

RESTART = gated(
    r"will restart worker group|[Rr]estarting worker group|Stopping worker group|DUE TO JOB REQUEUE",
    "worker group",
    "JOB REQUEUE",
)
# What torchrun prints first.
LAUNCH = gated(
    r"Setting OMP_NUM_THREADS environment variable for each process|Starting elastic_operator with launch configs",
    "Setting OMP_NUM",
    "Starting elastic_",
)


def attempts_of(log: Log) -> list[Log]:
    """One log for each attempt that shows a failure or progress, in their order; at least one."""
    folders = sorted({stream.attempt for stream in log.streams if stream.attempt is not None})
    if len(folders) > 1:
        return _worth([_of_folder(log, attempt) for attempt in folders], log)
    ends = _ends(log)
    if not ends:
        return [log]
    count = max(map(len, ends.values()))
    return _worth([_part(log, ends, number, count) for number in range(count + 1)], log)


def joined(log: Log, attempts: Sequence[Log]) -> Log:
    """Several attempts of one log as one."""
    orders = {line.order for attempt in attempts for line in attempt.lines}
    return _only(log, lambda line: line.order in orders)


def _worth(parts: list[Log], whole: Log) -> list[Log]:
    return [each for each in parts if each.raised or each.rows or each.exits or shows_progress(each)] or [whole]


def _of_folder(log: Log, attempt: int) -> Log:
    own = {number for number, stream in enumerate(log.streams) if stream.attempt in (None, attempt)}
    return _only(log, lambda line: line.stream in own)


def _part(log: Log, ends: dict[int, list[int]], number: int, count: int) -> Log:
    """The lines of one attempt. A file that tells of fewer attempts, or of none, is taken to show the last ones."""

    def is_in(line: Line) -> bool:
        own = ends.get(line.file, [])
        return count - len(own) + bisect_left(own, line.order) == number

    return _only(log, is_in)


def _ends(log: Log) -> dict[int, list[int]]:
    """In each file the lines with which an attempt ended."""
    found = sorted({*_restarts(log), *_exits_before_others(log), *_tables_before_others(log), *_before_launches(log)})
    ends: dict[int, list[int]] = {}
    files = {line.order: line.file for line in log.lines}
    news = [each.blocks[-1].at.order for each in log.raised]
    news = sorted([*news, *(row.lines[0].order for row in log.rows), *(each.at.order for each in log.exits)])
    for order in found:
        own = ends.setdefault(files[order], [])
        # Several lines tell of one restart, and a second agent of the same: nothing failed between them.
        if own and bisect_left(news, own[-1] + 1) == bisect_left(news, order + 1):
            own.pop()
        own.append(order)
    return ends


def _restarts(log: Log) -> list[int]:
    return [line.order for line in log.lines if RESTART.search(line.text)]


def _exits_before_others(log: Log) -> list[int]:
    """An agent speaks of a first failing process once an attempt; agents of several hosts, one after the other."""
    agents: dict[tuple[int, str | None, int], list[int]] = {}
    for each in log.exits:
        if each.at.tags.pid is not None:
            agents.setdefault((each.at.file, each.at.tags.host, each.at.tags.pid), []).append(each.at.order)
    count = max(map(len, agents.values()), default=0)
    files = {file for file, _, _ in agents}
    told = [[own for (file, _, _), own in agents.items() if file == each and len(own) == count] for each in files]
    return [max(own[number] for own in each) for each in told if each for number in range(count - 1)]


def _tables_before_others(log: Log) -> list[int]:
    pids: dict[tuple[int, str | None, int], int | None] = {}
    ends, before = list[int](), dict[int, int]()
    for row in log.rows:
        file = row.lines[0].file
        process = (file, row.host, row.rank)
        if pids.setdefault(process, row.pid) != row.pid:
            ends.append(before[file])
            pids = {process: row.pid}
        before[file] = row.lines[-1].order
    return ends


def _before_launches(log: Log) -> list[int]:
    """A table ends a launch; what torchrun prints first begins the next one."""
    ends = [row.lines[-1] for row in log.rows]
    launches = [line for line in log.lines if LAUNCH.search(line.text)] if ends else []
    found = []
    for launch in launches:
        own = [line.order for line in ends if line.file == launch.file and line.order < launch.order]
        found += [max(own)] if own else []
    return found


def _only(log: Log, wanted: Callable[[Line], bool]) -> Log:
    return log._replace(
        lines=tuple(line for line in log.lines if wanted(line)),
        raised=tuple(each for each in log.raised if wanted(each.blocks[-1].at)),
        rows=tuple(row for row in log.rows if wanted(row.lines[0])),
        exits=tuple(each for each in log.exits if wanted(each.at)),
    )
