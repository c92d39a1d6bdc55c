"""What the ranks of DistributedDataParallel share, and when; and clipping under a gradient scaler."""

from collections.abc import Iterator
from typing import Any

from firstfault.prove.judges.cadence import parts_of
from firstfault.prove.measured import Measured, Part
from firstfault.prove.verdict import Verdict, judge

_SYNC = ("GA303", "GA304", "GA305")


@judge
def sharing(measured: Measured) -> Iterator[Verdict]:
    parts = [part for window in measured.complete for part in window.parts]
    synced = [part for part in parts if _syncs(part)]
    if not synced:
        why = "No DistributedDataParallel model ran."
        yield from (Verdict(code, "not measured", why) for code in _SYNC)
        return
    yield _at_step(synced)
    long = [part for part in synced if len(_syncs(part)) > 1]
    if not long:
        why = "Every window had one micro-batch."
        yield from (Verdict(code, "not measured", why) for code in _SYNC[1:])
        return
    yield _missing(long[0])
    yield _around_backward(long[0])


def _syncs(part: Part) -> list[dict[str, Any]]:
    found = [micro_batch.values.get("sync") for micro_batch in part.micro_batches]
    return [each for each in found if each]


def _at_step(parts: list[Part]) -> Verdict:
    silent = [part for part in parts if not _syncs(part)[-1]["forward"]]
    if silent:
        message = (
            f"The last micro-batch before a step ran without sharing its gradients ({len(silent)} of {len(parts)} "
            "steps): each rank stepped on gradients of its own."
        )
        return Verdict("GA303", "proven", message)
    return Verdict("GA303", "refuted", "The last micro-batch before each step shared the gradients.")


def _missing(part: Part) -> Verdict:
    if any(not each["backward"] for each in _syncs(part)):
        return Verdict("GA304", "refuted", "Sharing was turned off in some micro-batches of a window.")
    shared, k = sum(each["forward"] for each in _syncs(part)), len(part.micro_batches)
    message = f"{shared} of {k} micro-batches of a window shared the gradients; the last alone has to."
    return Verdict("GA304", "proven" if shared == k else "refuted", message, quiet=True)


def _around_backward(part: Part) -> Verdict:
    wasted = sum(each["forward"] and not each["backward"] for each in _syncs(part))
    k = len(part.micro_batches)
    if wasted:
        message = f"In {wasted} of {k} micro-batches sharing was turned off after forward, where it is decided."
        return Verdict("GA305", "proven", message, quiet=True)
    return Verdict("GA305", "refuted", f"In {k} micro-batches, sharing was the same in forward and backward.")


@judge
def clipped_while_scaled(measured: Measured) -> Iterator[Verdict]:
    clips = [event for part in parts_of(measured) for event in part.named("clip")]
    scaled = [event for event in clips if float(event.details.get("scale", 1.0)) != 1.0]
    calls = [event for part in parts_of(measured) for event in part.named("unscale", "update")]
    at_work = any(event.details.get("enabled", True) for event in calls)
    if scaled:
        call, scale = scaled[0].details["call"], float(scaled[0].details["scale"])
        message = f"{call} ran on gradients that were still multiplied by {scale:g}; unscale_ had not run."
        yield Verdict("GA210", "proven", message)
    elif clips and at_work:
        yield Verdict("GA210", "refuted", "Clipping ran behind unscale_, on gradients without the scaler's factor.")
    else:
        why = "Nothing was clipped." if not clips else "No gradient scaler was at work (one without a GPU is off)."
        yield Verdict("GA210", "not measured", why)
