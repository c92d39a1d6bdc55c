"""A contrastive loss whose negatives are those of its own micro-batch: accumulation brings no more of them."""

from collections.abc import Iterator
from typing import Any

from firstfault.prove.measured import Measured, Part
from firstfault.prove.verdict import Verdict, judge

_SAME = 0.1  # deviations between the similarities of two micro-batches: the same examples, but for rounding
_UNKNOWN = 0.3
_LIKE = 0.5  # the same but for dropout, perhaps; those of other examples are about 1.1 apart


@judge
def contrastive(measured: Measured) -> Iterator[Verdict]:
    parts = [part for window in measured.complete for part in window.parts]
    seen = [part for part in parts if _rows(part)]
    if not seen:
        why = "No cross entropy over a square of similarities, with the diagonal as its targets, was seen."
        yield Verdict("CL601", "not measured", why)
        return
    rows = _rows(max(seen, key=lambda part: len(_rows(part))))
    if max(part.accumulated for part in seen) == 1:
        yield Verdict(
            "CL601", "not measured", "Every step had one micro-batch; with accumulation there is more to see."
        )
        return
    long = [part for part in seen if part.accumulated > 1]
    if any(repeats(part) for part in long):
        k = len(rows)
        told = f"The {k} calls of backward of a step compare the same {max(rows)} examples, each with all of them"
        yield Verdict("CL601", "refuted", f"{told}.")
        return
    if min(_apart(part) for part in long) < _LIKE:
        why = (
            "The similarities of the micro-batches are much alike; whether they are of the same examples is not known."
        )
        yield Verdict("CL601", "not measured", why)
        return
    yield Verdict(
        "CL601",
        "proven",
        f"Each example is compared with the {max(rows) - 1} others of its micro-batch, not with the {sum(rows) - 1} "
        f"others of the {len(rows)} micro-batches of a step.",
    )


def repeats(part: Part) -> bool:
    """Every backward of the step has the examples of all of it: features are kept, and a part of them made anew."""
    return len(_rows(part)) > 1 and _apart(part, max) < _SAME


def _apart(part: Part, pick: Any = min) -> float:
    """Between neighbours; where that is not known they may be the same, and may not."""
    found = [each.get("apart", 1.0) for each in _in_batch(part)[1:]]
    return float(pick((_UNKNOWN if each is None else each for each in found), default=1.0))


def _rows(part: Part) -> list[int]:
    return [each["rows"] for each in _in_batch(part)]


def _in_batch(part: Part) -> list[dict[str, Any]]:
    """Of each micro-batch, or nothing where one of them had no such loss: then it may be chance."""
    found = [micro_batch.values.get("in_batch") for micro_batch in part.micro_batches]
    return [each for each in found if each] if all(found) else []
