"""Did the run go on? A failure that was handled, and followed by progress to the end, is no failure."""

import re
from bisect import bisect_right
from typing import NamedTuple

from firstfault.diagnose import match
from firstfault.diagnose.failures import Failure
from firstfault.logs.log import Line, Log
from firstfault.patterns import gated

STEP = re.compile(
    r"\b(?:step|iter(?:ation)?|epoch|it|batch|upd(?:ate)?)\b\W{0,4}\d|\d{1,3}%\|.{0,60}\d+/\d+|\bloss\b\W{0,4}[\d.]",
    re.IGNORECASE,
)
DONE = (
    r"\b(?:training|run|job|fit|fine-?tuning)\b(?:(?!\b(?:not|never|failed|cannot)\b).){0,30}"
    r"\b(?:finished|completed?|done|ended)\b"
)
RUN_DONE = gated(DONE, flags=re.IGNORECASE)
FINISHED = re.compile(
    DONE + r"|^\W*(?:all )?(?:done|finished|completed)\W*$|\bsaved?\b.{0,60}(?:model|final|checkpoint|\.pt)",
    re.IGNORECASE,
)
ENDED_BADLY = gated(
    r"ChildFailedError|Exited with exit code [1-9]|exits with return code = -?[1-9]|task \d+: (?:Exited|Killed|Aborted)"
    r"|Process group watchdog thread terminated|shutting down workers|Killing subprocess",
    *("ChildFailedError", "Exited with exit code ", "exits with return code = ", "task "),
    *("Process group watchdog thread", "shutting down workers", "Killing subprocess"),
)
# How programs mark an error, whatever it is about.
REPORTS = gated(
    r"(?:^|[\s\[|(:])(?:ERROR|CRITICAL|FATAL)(?:[\s\]|:)]|$)|^(?:[Ff]atal|[Ee]rror)(?: error)?: \S"
    r"|\b(?:code|status)(?:: {1,12}| ?= ?| )-?[1-9]\d{0,2}\b|\(core dumped\)"
    r"|\*{3} \[[^\]\n]{1,200}\] Error \d|^FAILED: \S"
    r"|^Exception raised from \w|^frame #\d+: .+ \+ 0x|^\S.{0,200} FAILED$|^[\w.\-]{2,40}: (?:fatal )?error: \S"
    r"|(?:^|[\s|>\]])(?:[a-z_]\w*\.){0,6}[A-Z]\w{0,60}(?:Error|Exception): \S"
    r"|\[[EF](?:\d{3,4} [\d:.]{5,20})? ?\w{1,60}\.(?:cpp|hpp|cc|cu|h):\d+\]"
)
# Words of trouble: near the end of a text that tells no end of the run they forbid an all-clear.
TROUBLE = gated(
    r"\b(?:fail(?:ed|ure)|died|killed|crashed|refused|preempted|aborted|unexpectedly|Traceback \(most)\b"
    r"|\btimed[ -]?out\b|\bclosed by (?:remote )?peer\b|\bDue to |\bexit(?:ed)? with\b",
    flags=re.IGNORECASE,
)
HARMLESS = gated(
    r"\bINFO\b|libibverbs|\bretry|\b(?:0|no) (?:\w+ )?(?:fail|error|crash|kill)|Warning: |\bDEBUG\b|successful",
    flags=re.IGNORECASE,
)
TAIL = 60
REPORT_MARKS = (
    "ERROR",
    "CRITICAL",
    "FATAL",
    "atal",
    "rror",
    "code",
    "status",
    "Code",
    "core dumped",
    "raised from",
    "frame #",
    "Exception: ",
    "FAILED",
    "*** [",
    "[E",
    "[F",
)
# A line that opens with a backtick holds no failure of its own, but may hold a signature's words.
QUOTED = (*match.QUOTED, "`")
AFTER = 2


def reported_errors(log: Log) -> list[Line]:
    """Lines that mark an error after which nothing of the run went on, in a text that tells no end of the run."""
    found = [line for line in log.lines if _reports(line)]
    found = found or [line for line in log.lines[-TAIL:] if _troubles(line)]
    if not found or any(RUN_DONE.search(line.text) for line in log.lines):
        return []
    steps = [line.order for line in log.lines if STEP.search(line.text) and not _reports(line)]
    return [line for line in found if sum(order > line.order for order in steps[-AFTER:]) < AFTER]


def _troubles(line: Line) -> bool:
    quoted = line.text.lstrip().startswith(QUOTED)
    return not quoted and bool(TROUBLE.search(line.text)) and not HARMLESS.search(line.raw)


def _reports(line: Line) -> bool:
    if not any(mark in line.raw for mark in REPORT_MARKS) or line.text.lstrip().startswith(QUOTED):
        return False
    return bool(REPORTS.search(line.raw) or REPORTS.search(line.text))


class Moment(NamedTuple):
    """A line that tells of the run's course: where it stands, and the rank that printed it if that is told."""

    order: int
    rank: int | None


class Course(NamedTuple):
    """How the run of one log went: made once, asked for every failure.

    ``badly`` is the last line that says that a process of the job failed; ``fresh`` are the lines of progress that say
    something new; ``finished`` those that tell an end.
    """

    badly: int | None
    fresh: tuple[Moment, ...]
    finished: tuple[Moment, ...]


def course_of(log: Log) -> Course:
    badly = [each.at.order for each in log.exits]
    seen: set[str] = set()
    fresh, finished = list[Moment](), list[Moment]()
    for line in log.lines:
        if ENDED_BADLY.search(line.text):
            badly.append(line.order)
        if STEP.search(line.text) and (shape := _shape(line)) not in seen:
            seen.add(shape)
            fresh.append(Moment(line.order, line.tags.rank))
        if FINISHED.search(line.text):
            finished.append(Moment(line.order, line.tags.rank))
    return Course(max(badly, default=None), tuple(fresh), tuple(finished))


def went_on(failure: Failure, log: Log, course: Course) -> bool:
    """True where lines of progress that were not there before follow the failure, on its rank or, untold, anywhere."""
    if failure.row is not None or log.rows:
        return False
    if course.badly is not None:
        # The launcher saw a process fail: only a run that was started again and came to its end got over it.
        return any(moment.order > course.badly for moment in course.finished)
    last = failure.raised.blocks[-1].lines[-1].order if failure.raised else failure.lines[0].order
    if _some_after(last, failure, course.fresh, AFTER):
        return True
    # "Training has ended." behind a program that gave up says nothing of success.
    gave_up = failure.signature.id == "child-failed" and failure.block is not None
    return not gave_up and _some_after(last, failure, course.finished, 1)


def _order(moment: Moment) -> int:
    return moment.order


def _some_after(order: int, failure: Failure, moments: tuple[Moment, ...], wanted: int) -> bool:
    for moment in moments[bisect_right(moments, order, key=_order) :]:
        if failure.owner.rank is None or moment.rank in (failure.owner.rank, None):
            wanted -= 1
        if wanted <= 0:
            return True
    return False


def shows_progress(log: Log) -> bool:
    return any(STEP.search(line.text) or FINISHED.search(line.text) for line in log.lines)


def _shape(line: Line) -> str:
    """A bar that is drawn again at the same count is no progress."""
    count = re.search(r"\d+/\d+", line.text)
    return count[0] if count else line.text
