"""Stamps of every prefix are understood, and compared only by what both of them tell."""

import json
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault import logs
from firstfault.library import load
from firstfault.logs.source import from_text
from firstfault.logs.times import seconds_between, shown, stamp


def apart(one: str, other: str) -> float | None:
    first, second = stamp(one), stamp(other)
    assert first is not None and second is not None
    return seconds_between(first, second)


def before(one: str, other: str, same_host: bool = True) -> bool:
    first, second = stamp(one), stamp(other)
    assert first is not None and second is not None
    return first.before(second, same_host)


@pytest.mark.parametrize(
    "prefix", [each for each in load().prefixes if "(?P<time>" in each.pattern], ids=lambda p: p.id
)
def test_the_time_of_every_prefix_is_understood(prefix: object) -> None:
    samples = prefix.samples  # type: ignore[attr-defined]
    log = logs.read([from_text("\n".join(each.text for each in samples), "x")], load().prefixes)
    told = [line.tags.time for line in log.lines if line.tags.time]
    assert told
    assert all(stamp(time) for time in told), told


@pytest.mark.parametrize("text", ["", "step 3", "12:30", "2026-11-30", "0.98", "Foo 30 12:00:01"])
def test_what_is_no_stamp(text: str) -> None:
    assert stamp(text) is None


@given(st.datetimes(datetime(1971, 1, 1), datetime(2099, 12, 31)), st.integers(1, 5 * 3600))
def test_a_date_and_a_date_without_year_are_as_far_apart_as_they_are(start: datetime, seconds: int) -> None:
    end = start + timedelta(seconds=seconds)
    whole = f"{start:%Y-%m-%d %H:%M:%S}"
    assert apart(whole, f"{end:%Y/%m/%d %H:%M:%S}") == seconds
    assert apart(whole, f"{end.month}{end:%d %H:%M:%S}") == seconds
    assert apart(whole, f"{end:%b} {end.day:2} {end:%H:%M:%S}") == seconds
    assert apart(whole, f"{end:%H:%M:%S},000") == seconds
    assert apart(f"{start:%H:%M:%S}.0", f"{end:%m-%d %H:%M:%S}") == seconds


def test_zones_are_taken_off() -> None:
    assert apart("2026-11-30T10:00:01Z", "2026-11-30T12:00:02+02:00") == 1
    assert apart("2026-11-30T10:00:01Z", "2026-11-30T04:30:02.5-0530") == 1.5
    moment = datetime(2026, 11, 30, 10, 0, 1, tzinfo=timezone.utc).timestamp()
    assert apart("2026-11-30T10:00:01Z", f"{moment * 1000 + 250:.0f}") == 0.25


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2026-11-30T10:00:01Z", "2026-11-30 10:00:09"),
        ("2397166.983093", "2026-11-30 10:00:09"),
        ("09:00:00.000", "16:00:00.000"),
    ],
    ids=["zone untold", "since boot", "perhaps another day"],
)
def test_what_cannot_be_compared(one: str, other: str) -> None:
    assert apart(one, other) is None
    assert not before(one, other) and not before(other, one)


def test_a_stamp_in_whole_seconds_orders_nothing_within_its_second() -> None:
    assert not before("2026-11-30 10:00:01", "2026-11-30 10:00:01.9")
    assert before("2026-11-30 10:00:01", "2026-11-30 10:00:02")
    assert before("2026-11-30 10:00:01.1", "2026-11-30 10:00:01.2")
    assert not before("2026-11-30 10:00:02", "2026-11-30 10:00:01.2")


def test_clocks_of_two_hosts_may_differ() -> None:
    assert not before("1130 10:00:01.0", "1130 10:00:02.9", same_host=False)
    assert before("1130 10:00:01.0", "1130 10:00:03.2", same_host=False)


def test_an_instant_that_was_counted_is_shown_as_a_time() -> None:
    ended = stamp("1231 00:00:05.25")
    assert ended is not None
    assert shown(ended.minus(10)) == "23:59:55.2"


def test_the_time_of_a_record_is_kept_beside_the_text() -> None:
    records = [
        {"log": "ValueError: boom\n", "stream": "stderr", "time": "2026-11-30T10:00:01.5Z"},
        {"timestamp": 1796032801500, "message": "step 3"},
    ]
    text = "".join(json.dumps(each) + "\n" for each in records)
    lines = logs.read([from_text(text, "x")], load().prefixes).lines
    assert [line.text for line in lines] == ["ValueError: boom", "step 3"]
    first, second = (stamp(line.tags.recorded or "") for line in lines)
    assert first is not None and second is not None
    assert seconds_between(first, second) == 0


def test_an_error_file_gives_its_traceback_and_its_time() -> None:
    callstack = (
        'Traceback (most recent call last):\n  File "/home/ann/train.py", line 3, in main\n    go()\nKeyError: 7\n'
    )
    message = {"message": "KeyError: 7", "extraInfo": {"py_callstack": callstack, "timestamp": "1796032801"}}
    log = logs.read([from_text(json.dumps({"message": message}), "error.json")], load().prefixes)
    assert [(each.blocks[0].type, each.blocks[0].frames[0].line) for each in log.raised] == [("KeyError", 3)]
    assert log.raised[0].blocks[0].at.tags.recorded == "1796032801"
