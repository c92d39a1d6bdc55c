"""JSON records that wrap one line of a log each: docker, Cloud Logging, CloudWatch, structured loggers, error files."""

from typing import Any, NamedTuple

KEYS = ("log", "message", "msg", "textPayload", "jsonPayload", "event", "MESSAGE")
MARKS = tuple(f'"{key}":' for key in KEYS)
TIMES = ("time", "timestamp", "ts", "@timestamp", "asctime")


class Record(NamedTuple):
    """The text inside, and the time as the record tells it."""

    text: str
    time: str | None


def record_of(raw: str) -> Record | None:
    """What a record holds, or None where the line is no record."""
    bare = raw.strip()
    if not (bare.startswith("{") and bare.endswith("}")) or not any(mark in bare for mark in MARKS):
        return None
    import json

    try:
        record = json.loads(bare)
        text = _text(record)
    except (ValueError, RecursionError):
        return None
    return Record(text, _time(record)) if text is not None else None


def _text(record: Any) -> str | None:
    """The first text under one of the keys; what stands there may be a record itself."""
    if isinstance(record, str):
        return record
    if not isinstance(record, dict):
        return None
    extra = record.get("extraInfo")
    if isinstance(extra, dict) and str(extra.get("py_callstack")).startswith("Traceback ("):
        return str(extra["py_callstack"])  # An error file of torch: the whole traceback beside its last line.
    return next((text for key in KEYS if (text := _text(record.get(key))) is not None), None)


def _time(record: Any) -> str | None:
    """As text: numbers of seconds or milliseconds since 1970 stay digits."""
    if not isinstance(record, dict):
        return None
    for key in TIMES:
        if isinstance(record.get(key), str | int | float):
            return str(record[key])
    message = record.get("message")
    extra = message.get("extraInfo") if isinstance(message, dict) else None
    return str(extra["timestamp"]) if isinstance(extra, dict) and "timestamp" in extra else None
