"""When a line was written, from the stamp before it: every format of the prefix files, with or without year and zone.

Two stamps are compared by what both of them tell. Where one has a zone and the other has none, nothing follows.
"""

import re
from typing import Literal, NamedTuple

from firstfault.patterns import gated

# What a stamp counts from: 1970 in UTC; 1970 in a zone that is not told; the start of an untold year; midnight; boot.
Clock = Literal["zoned", "dated", "yearless", "daytime", "boot"]
# The clocks of two hosts without proof of their agreement may differ by this many seconds.
TOLERANCE = 2.0
DAY = 86400
LEAP_YEAR = 366 * DAY
# Times of day that are further apart may be of two days.
SAME_DAY = 6 * 3600

_FRACTION = r"(?:[.,](?P<fraction>\d{1,9}))?"
_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)" + _FRACTION
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DATE = r"(?P<year>\d{4})[-/:](?P<month>\d\d)[-/:](?P<day>\d\d)"
_DATED = gated(_DATE + "[T _-]" + _TIME + r" ?(?P<zone>Z|[+-]\d\d:?\d\d)?$")
_NAMED = gated(r"(?:[A-Z][a-z]{2} )?(?P<name>[A-Z][a-z]{2}) (?P<day>[ \d]\d) " + _TIME + r"(?: (?P<year>\d{4}))?$")
# glog has no sign between month and day, torch's C++ lines no leading zero either; vLLM has a dash.
_YEARLESS = gated(r"(?P<month>\d{1,2}?)-?(?P<day>\d\d) " + _TIME + "$")
_DAYTIME = gated(_TIME + "$")
_BOOT = gated(r" *(?P<whole>\d{1,9})\.(?P<fraction>\d{6})$")
_EPOCH = gated(r"(?P<whole>\d{10})(?:\d{3}|\.(?P<fraction>\d{1,9}))?$")


class Stamp(NamedTuple):
    """``seconds`` count from what ``clock`` says; ``step`` is what the last digit of the stamp is worth."""

    text: str
    clock: Clock
    seconds: float
    step: float

    def before(self, other: "Stamp", same_host: bool) -> bool:
        """Surely earlier: also if this one was at the end of its last digit, and the hosts' clocks apart."""
        apart = seconds_between(self, other)
        return apart is not None and round(apart, 6) >= self.step + (0 if same_host else TOLERANCE)

    def minus(self, seconds: float) -> "Stamp":
        return self._replace(seconds=self.seconds - seconds)


def stamp(text: str) -> Stamp | None:
    """The stamp that a prefix, a record or a table tells; None where it is in no format that is known."""
    if found := _DATED.match(text):
        zone = found["zone"]
        day = _days(int(found["year"]), int(found["month"]), int(found["day"]))
        return _made(text, "zoned" if zone else "dated", found, day * DAY - _offset(zone))
    if found := _NAMED.match(text):
        month = _MONTHS.index(found["name"]) + 1 if found["name"] in _MONTHS else 0
        year = int(found["year"] or 0)
        day = _days(year, month, int(found["day"])) if year else _day_of_year(month, int(found["day"]))
        return _made(text, "dated" if year else "yearless", found, day * DAY) if month else None
    if found := _YEARLESS.match(text):
        return _made(text, "yearless", found, _day_of_year(int(found["month"]), int(found["day"])) * DAY)
    if found := _DAYTIME.match(text):
        return _made(text, "daytime", found, 0)
    if found := _EPOCH.match(text):
        milli = len(text) == 13 and text.isdigit()
        return Stamp(text, "zoned", float(text) / (1000 if milli else 1), 0.001 if milli else _step(found))
    found = _BOOT.match(text)
    return Stamp(text, "boot", float(text), _step(found)) if found else None


def seconds_between(one: Stamp, other: Stamp) -> float | None:
    """From the one to the other; None where the two do not tell it."""
    clocks = {one.clock, other.clock}
    if len(clocks) > 1 and clocks & {"zoned", "boot"}:
        return None
    if "daytime" in clocks:
        apart = _nearest(other.seconds % DAY - one.seconds % DAY, DAY)
        return apart if abs(apart) <= SAME_DAY else None
    if "yearless" in clocks:
        return _nearest(_within_year(other) - _within_year(one), LEAP_YEAR)
    return other.seconds - one.seconds


def shown(instant: Stamp) -> str:
    """The time of day of an instant that was counted, not read; what counts from boot stays a number of seconds."""
    tenths = round(instant.seconds * 10)
    if instant.clock == "boot":
        return f"{tenths / 10:.1f}"
    seconds = tenths // 10 % DAY
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    text = text if instant.step >= 1 else f"{text}.{tenths % 10}"
    return f"{text} UTC" if instant.clock == "zoned" else text


def _made(text: str, clock: Clock, found: "re.Match[str]", day: int) -> Stamp:
    seconds = int(found["hour"]) * 3600 + int(found["minute"]) * 60 + int(found["second"])
    return Stamp(text, clock, day + seconds + float(f"0.{found['fraction'] or 0}"), _step(found))


def _step(found: "re.Match[str]") -> float:
    return float(10 ** -len(found["fraction"] or ""))


def _offset(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    sign = -1 if zone[0] == "-" else 1
    return sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01. ``datetime`` would be a noticeable part of a small diagnosis."""
    year -= month <= 2
    of_year = (153 * (month + (9 if month <= 2 else -3)) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + of_year - 719468


def _day_of_year(month: int, day: int) -> int:
    """Counted in a leap year, so that every date has a place."""
    return _days(2000, month, day) - _days(2000, 1, 1)


def _within_year(instant: Stamp) -> float:
    """A full date without its year. Days after February are counted as in a leap year, as a date without year is."""
    if instant.clock != "dated":
        return instant.seconds
    day, seconds = divmod(instant.seconds, DAY)
    year = 1970 + int(day // 365.2425)
    year += (day >= _days(year + 1, 1, 1)) - (day < _days(year, 1, 1))
    of_year = day - _days(year, 1, 1)
    is_leap = _days(year + 1, 1, 1) - _days(year, 1, 1) == 366
    return (of_year + (not is_leap and of_year >= 59)) * DAY + seconds


def _nearest(apart: float, cycle: int) -> float:
    """A difference on a circle: the shorter way round."""
    return (apart + cycle / 2) % cycle - cycle / 2
