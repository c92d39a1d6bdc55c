"""JSON records that wrap one line of a log each: docker, Cloud Logging, CloudWatch, structured loggers, error files."""

from typing import Any

KEYS = ("log", "message", "msg", "textPayload", "jsonPayload", "event")
MARKS = tuple(f'"{key}":' for key in KEYS)


def text_of(raw: str) -> str | None:
    """The text inside of a record, or None where the line is no record."""
    bare = raw.strip()
    if not (bare.startswith("{") and bare.endswith("}")) or not any(mark in bare for mark in MARKS):
        return None
    import json

    try:
        return _text(json.loads(bare))
    except (ValueError, RecursionError):
        return None


def _text(record: Any) -> str | None:
    """The first text under one of the keys; what stands there may be a record itself."""
    if isinstance(record, str):
        return record
    if not isinstance(record, dict):
        return None
    return next((text for key in KEYS if (text := _text(record.get(key))) is not None), None)
