"""A contrastive loss whose negatives are those of its own micro-batch: accumulation brings no more of them."""

from collections.abc import Iterator

from firstfault.prove.measured import Measured, Part
from firstfault.prove.verdict import Verdict, judge


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
    yield Verdict(
        "CL601",
        "proven",
        f"Each example is compared with the {max(rows) - 1} others of its micro-batch, not with the {sum(rows) - 1} "
        f"others of the {len(rows)} micro-batches of a step.",
    )


def _rows(part: Part) -> list[int]:
    """Of each micro-batch, or nothing where one of them had no such loss: then it may be chance."""
    found = [micro_batch.values.get("in_batch") for micro_batch in part.micro_batches]
    return [each["rows"] for each in found if each] if all(found) else []
