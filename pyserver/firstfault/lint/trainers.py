"""What each release of transformers' Trainer does to the gradient: ``signatures/trainers.toml``.

The table was made by running the classes, never by reading their text. Between two measured releases only what both of
them say is believed.
"""

from functools import cache
from typing import Any

from firstfault.library import table
from firstfault.lint.versions import Number, Release, parse

# One mark for each measured release, see scripts/trainers_probe.py.
RIGHT, DIVIDED, MEAN_OF_MEANS, TIMES_STEPS = "1", "d", "m", "k"
_UNKNOWN = "-."


def of_head(name: str, where: Release) -> str | None:
    """The mark of a model class in every release that is possible; None where they differ or were not measured."""
    return _common(_table().get("heads", {}).get(name, ""), where)


def of_case(name: str, where: Release) -> str | None:
    """The same for a way to use the Trainer: ``compute-loss-mean``."""
    return _common(_table().get("cases", {}).get(name, ""), where)


def head_of(auto: str, kind: str) -> str | None:
    """The class that ``AutoModelForMaskedLM`` makes for a model of the kind ``bert``."""
    found: str | None = _table().get("auto", {}).get(auto, {}).get(kind)
    return found


def kinds_of(auto: str) -> list[str]:
    """The kinds of model that an automatic class was measured with."""
    return list(_table().get("auto", {}).get(auto, {}))


def kind_of_checkpoint(checkpoint: str, auto: str) -> str | None:
    """``bert`` of ``google-bert/bert-base-uncased``: the longest kind that the name begins with."""
    name = checkpoint.rstrip("/").rpartition("/")[2].lower().replace("_", "-").replace("deberta-v3", "deberta-v2")
    kinds = [each for each in kinds_of(auto) if f"{name}-".startswith(f"{each.replace('_', '-')}-")]
    return max(kinds, key=len, default=None)


def newest() -> Release:
    """The newest release that was measured."""
    text = _versions()[-1]
    return Release(parse(text), parse(text), text, "", 1)


def is_known_head(name: str) -> bool:
    return name in _table().get("heads", {})


@cache
def _table() -> dict[str, Any]:
    return table("trainers")


def _versions() -> list[str]:
    return list(_table().get("versions", ["0"]))


def _common(marks: str, where: Release) -> str | None:
    numbers = [parse(each) for each in _versions()]
    if len(marks) != len(numbers):
        return None
    found = {marks[at] for at in _spanned(numbers, where)}
    mark = found.pop() if len(found) == 1 else None
    return None if mark is None or mark in _UNKNOWN else mark


def _spanned(numbers: list[Number], where: Release) -> range:
    """The measured releases from the last at or below the lowest to the first at or above the highest possible one."""
    first = max((at for at, each in enumerate(numbers) if each <= where.low), default=0)
    above = (at for at, each in enumerate(numbers) if where.high is not None and each >= where.high)
    return range(first, min(above, default=len(numbers) - 1) + 1)
