"""A log and the library in, a report out. ``diagnose`` reads no file, prints nothing and cannot fail."""

from firstfault.diagnose.assemble import attempt_of, no_failure, read_of, report_of
from firstfault.diagnose.attempts import attempts_of, joined
from firstfault.diagnose.causality import Verdict, decide
from firstfault.diagnose.evidence import Case
from firstfault.diagnose.failures import Failure, failures_of
from firstfault.diagnose.progress import Course, course_of, went_on
from firstfault.diagnose.ranks import Ranks
from firstfault.diagnose.report import Report
from firstfault.library import Library
from firstfault.logs.log import Log
from firstfault.patterns import gated

# A value that is no number; Megatron counts its "nan iterations" on every line.
NO_NUMBER = gated(
    r"[:=|\s][\s\"'\[(]{0,8}-?(?:nan|NaN|NAN|[Ii]nf|INF)\b(?! iter)", "nan", "NaN", "NAN", "inf", "Inf", "INF"
)
# Words of lines that hold metrics.
MARKS = ("loss", "Loss", "LOSS", "norm", "scale")

# A job that was started again a hundred times is told by its last attempts.
MOST_EARLIER = 5


def diagnose(log: Log, library: Library) -> Report:
    """What failed first in the last attempt that the log shows, together with earlier ones where it only echoes them.

    Flight Recorder dumps among the files answer alone where the text shows no failure, and name the suspects where it
    only shows who waited.
    """
    report = _of_text(log, library)
    if not log.dumps:
        return report
    from firstfault.diagnose.recorded import report_of_dumps, with_dumps

    if report.initiating is None:
        return report_of_dumps(log.dumps, library, read_of(log, Ranks(log)))
    return with_dumps(report, log.dumps)


def _of_text(log: Log, library: Library) -> Report:
    *before, last = attempts_of(log)
    report = _diagnose(last, library, log)
    while before and report.initiating and _only_echoes(report, library):
        last = joined(log, [before.pop(), last])
        report = _diagnose(last, library, log)
    numbered = list(enumerate(before, start=1))[-MOST_EARLIER:]
    earlier = tuple(attempt_of(number, _diagnose(each, library, each)) for number, each in numbered)
    return report._replace(earlier=earlier)


def _diagnose(log: Log, library: Library, whole: Log) -> Report:
    """``whole`` holds the attempts before this one too: metrics are compared across a restart."""
    ranks = Ranks(log)
    course = course_of(log)
    failures = [each for each in failures_of(log, library, ranks) if _counts(each, log, course)]
    if any(NO_NUMBER.search(line.text) for line in log.lines):
        from firstfault.diagnose.numerics import weigh

        failures = weigh(failures, log, library, ranks)
    report = _decided(failures, log, library, ranks)
    if report.initiating is not None or not any(mark in line.text for line in whole.lines for mark in MARKS):
        return report
    # Late, because most selections hold an exception and no curve.
    from firstfault.diagnose.numerics import symptom

    ranks = Ranks(whole)
    choice = symptom(whole, library, ranks)
    if choice is None:
        return report
    return report_of(Verdict(choice, (), ()), choice, [], whole, library, ranks)._replace(read=report.read)


def _decided(failures: list[Failure], log: Log, library: Library, ranks: Ranks) -> Report:
    verdict = decide(Case(failures, log, ranks, library))
    if verdict.choice is None:
        return no_failure(log, library, ranks)
    return report_of(verdict, verdict.choice, failures, log, library, ranks)


def _counts(failure: Failure, log: Log, course: Course) -> bool:
    """Silent faults, what Python ignored while cleaning up, and what the run got over are not candidates.

    A NaN is not got over by going on.
    """
    if failure.role == "silent" or (failure.raised is not None and failure.raised.ignored):
        return False
    return failure.signature.category == "numerics-silent" or not went_on(failure, log, course)


def _only_echoes(report: Report, library: Library) -> bool:
    assert report.initiating is not None
    return library.signatures[report.initiating.signature].role == "collateral"
