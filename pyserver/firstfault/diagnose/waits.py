"""When a wait began: the time at which a watchdog gave up, minus the duration that it names.

A rank that fails early is waited for long. What a watchdog printed last can so be about the wait that began first, and
what was recorded only after it had given up cannot have caused the wait.
"""

from typing import NamedTuple

from firstfault.diagnose.earliest import on_one_host, stamp_of
from firstfault.diagnose.evidence import TIMEOUTS, Case
from firstfault.diagnose.failures import Failure
from firstfault.logs.times import Stamp, shown, stamp
from firstfault.patterns import gated

DURATION = gated(
    r"ran for (?P<ran>\d{1,12}) milliseconds before timing out|Timed out waiting (?P<waited>\d{1,12}) ?ms",
    "milliseconds before timing out",
    "Timed out waiting",
)


class Wait(NamedTuple):
    failure: Failure
    ended: Stamp
    seconds: float

    @property
    def began(self) -> Stamp:
        return self.ended.minus(self.seconds)


def by_start(failures: list[Failure], case: Case) -> list[Failure]:
    """The failures again, of the waits the one first that surely began before all others."""
    waits = _waits(failures, case)
    first = [each for each in waits if all(_began_before(each, other, case) for other in waits if other is not each)]
    if len(first) != 1 or len(waits) == 1:
        return failures
    at = failures.index(waits[0].failure)
    others = [each for each in failures if each is not first[0].failure]
    return [*others[:at], first[0].failure, *others[at:]]


def reason_of(failure: Failure, case: Case) -> str:
    """When the wait began, and that this was before every other wait; empty for what is no wait or has no time."""
    own = _wait(failure, case)
    if own is None:
        return ""
    others = [each for each in _waits(case.failures, case) if each.failure is not failure]
    earlier = others and all(_began_before(own, each, case) for each in others)
    text = f" Its wait began at {shown(own.began)}: {own.ended.text.strip()} minus the {own.seconds:g} s that it names"
    return f"{text}, before every other wait." if earlier else f"{text}."


def is_after(failure: Failure, case: Case) -> bool:
    """Was it recorded only after a watchdog had given up? A stamp of printing would not tell: printing can be late."""
    row = case.ranks.rows.get(failure.owner.rank) if failure.owner.rank is not None else None
    if row is None or row.error is None or not row.time:
        return False
    recorded = stamp(row.time)
    return recorded is not None and any(
        each.ended.before(recorded, on_one_host(each.failure, failure, case)) for each in _waits(case.failures, case)
    )


def _waits(failures: list[Failure], case: Case) -> list[Wait]:
    return [wait for each in failures if (wait := _wait(each, case))]


def _wait(failure: Failure, case: Case) -> Wait | None:
    if failure.signature.id not in TIMEOUTS:
        return None
    texts = [line.text for line in failure.lines] + ([failure.block.message] if failure.block else [])
    found = next((found for text in texts if (found := DURATION.search(text))), None)
    ended = stamp_of(failure, case) if found else None
    return Wait(failure, ended, int(found["ran"] or found["waited"]) / 1000) if found and ended else None


def _began_before(one: Wait, other: Wait, case: Case) -> bool:
    return one.began.before(other.began, on_one_host(one.failure, other.failure, case))
