"""How often the calls of a window ran: what belongs to a step must not run with every micro-batch."""

from collections.abc import Iterator
from typing import NamedTuple

from firstfault.prove.measured import Event, Measured, Part, Window
from firstfault.prove.verdict import Verdict, judge
from firstfault.prove.weights import is_close, terms


class _Call(NamedTuple):
    code: str
    event: str
    name: str
    meant: str
    none: str  # why nothing is known where it never ran
    quiet: bool = False


_CALLS = (
    _Call("GA207", "schedule", "The scheduler's step", "behind the step", "No scheduler of torch stepped.", quiet=True),
    _Call("GA209", "clip", "Clipping", "right before the step", "Nothing was clipped by clip_grad_norm_ or its kin."),
    _Call("GA211", "unscale", "unscale_", "before the step", "No gradient scaler was at work."),
    _Call("GA211", "update", "The scaler's update", "behind the step", "No gradient scaler was at work."),
    _Call(
        "GA212", "ema", "update_parameters", "behind the step", "No torch.optim.swa_utils.AveragedModel was updated."
    ),
)


@judge
def per_micro_batch(measured: Measured) -> Iterator[Verdict]:
    parts = parts_of(measured)
    long = [part for part in parts if len(part.micro_batches) > 1]
    for call in _CALLS:
        if not any(part.named(call.event) for part in parts):
            yield Verdict(call.code, "not measured", call.none)
        elif not long:
            yield Verdict(call.code, "not measured", why_short(parts))
        elif call.code == "GA207" and (told := _as_long_as_micro_batches(parts)):
            yield Verdict(call.code, "refuted", told)
        else:
            yield _cadence(call, long)


def _cadence(call: _Call, long: list[Part]) -> Verdict:
    worst = max(long, key=lambda part: len(_too_early(part, call.event)))
    early = _too_early(worst, call.event)
    k = len(worst.micro_batches)
    if early:
        ran = sum(not each.stepped and each.after > 0 for each in worst.named(call.event))
        message = (
            f"{call.name} ran {times(ran)} in a window of {k} micro-batches, {len(early)} of them before the last "
            f"micro-batch; once, {call.meant}, is meant.{_factors(early)}"
        )
        return Verdict(call.code, "proven", message, quiet=call.quiet)
    return Verdict(call.code, "refuted", f"{call.name} ran in no micro-batch but the last, in windows of {k}.")


def _as_long_as_micro_batches(parts: list[Part]) -> str:
    """A schedule that was made for micro-batches may step with each of them."""
    lengths = {event.details.get("length") for part in parts for event in part.named("schedule")}
    epochs = {event.details.get("length") for part in parts for event in part.named("data_begin")}
    if len(lengths) != 1 or len(epochs) != 1:
        return ""
    length, epoch = lengths.pop(), epochs.pop()
    if not length or not epoch or length % epoch:
        return ""
    return f"The schedule is made for {length:,} steps, and an epoch has {epoch:,} micro-batches: it counts those."


def _too_early(part: Part, name: str) -> list[Event]:
    """In a window that a fault cut short, the call that raised stands behind the last backward."""
    if part.stepped:
        return part.inside(name)
    return [each for each in part.named(name) if each.after > 0][:-1]


def _factors(events: list[Event]) -> str:
    factors = [each.details["factor"] for each in events if "factor" in each.details]
    if not factors:
        return ""
    if min(factors) > 0.9999:
        return " None of the early ones was large enough to act."
    return f" The early ones multiplied what had been collected by down to {min(factors):.3g}."


@judge
def cleared_in_window(measured: Measured) -> Iterator[Verdict]:
    """GA204, GA205: gradients of earlier micro-batches are gone before the step; an epoch's start is GA201's matter."""
    parts = parts_of(measured)
    long = [part for part in parts if len(part.micro_batches) > 1 and part.stepped]
    if not long:
        yield from (Verdict(code, "not measured", why_short(parts)) for code in ("GA204", "GA205"))
        return
    if any(micro_batch.values.get("moved") for part in long for micro_batch in part.micro_batches):
        why = "The weights change between the backward calls of a step, so these are not the micro-batches of a window."
        yield from (Verdict(code, "not measured", why) for code in ("GA204", "GA205"))
        return
    if any(part.named("changed") for part in long):
        why = "The script puts gradients of its own in place of those that backward made."
        yield from (Verdict(code, "not measured", why) for code in ("GA204", "GA205"))
        return
    worst = max(long, key=_dropped)
    k, dropped = len(worst.micro_batches), _dropped(worst)
    if not dropped:
        message = f"No gradient was cleared inside of a window: all {k} micro-batches of it reach the step."
        yield from (Verdict(code, "refuted", message) for code in ("GA204", "GA205"))
        return
    calls = len([each for each in worst.named("zero_grad") if 0 < each.after < k and not each.stepped])
    by = f"zero_grad ran {times(calls)} inside of a window" if calls else "Gradients were cleared inside of a window"
    message = f"{by} of {k} micro-batches: the gradients of {dropped} of them were dropped before the step."
    yield Verdict("GA204", "proven", message, also=("GA205",))


def _dropped(part: Part) -> int:
    return 0 if part.restarts else sum(each.dropped for each in part.micro_batches)


@judge
def never_cleared(measured: Measured) -> Iterator[Verdict]:
    parts = [part for window in measured.windows[1:] for part in window.parts if part.micro_batches]
    began = [_began(part) for part in parts]
    if not began:
        yield Verdict(
            "GA206", "not measured", "Whether gradients are cleared shows in the second window; there is none."
        )
    elif "kept" in began:
        number = began.count("kept")
        yield Verdict(
            "GA206", "proven", f"{number} of {len(began)} windows began with the gradients of the window before."
        )
    elif all(each in ("cleared", "cleared later", "none") for each in began):
        windows = f"{len(began)} window{'' if len(began) == 1 else 's'}"
        yield Verdict("GA206", "refuted", f"The gradients were cleared at the start of {windows}, or within.")
    else:
        yield Verdict(
            "GA206", "not measured", "The gradients were changed between windows, but neither kept nor cleared."
        )


def _began(part: Part) -> str:
    states: dict[str, str] = part.values.get("began", {})
    state = states.get(str(part.optimizer), "none")
    cleared = any(each.details.get("optimizer") == part.optimizer for each in part.named("cleared"))
    return "cleared later" if state == "kept" and cleared else state


@judge
def first_window(measured: Measured) -> Iterator[Verdict]:
    """GA203: the first step holds one micro-batch, or one too many, the next ones k."""
    lengths = [len(window.parts[0].micro_batches) for window in measured.complete]
    same = len({window.parts[0].optimizer for window in measured.complete}) == 1
    if len(lengths) < 2 or not same or max(lengths) == 1:
        why = "It takes two windows of one optimizer, of more than one micro-batch, to tell."
        yield Verdict("GA203", "not measured", why)
        return
    first, k = lengths[0], lengths[1]
    shown = ", ".join(map(str, lengths[:6]))
    if k > 1 and first in (1, k + 1) and _one_divisor(measured.complete[:2]):
        message = (
            f"The windows hold {shown} micro-batches: the first step comes {'too early' if first < k else 'late'}."
        )
        yield Verdict("GA203", "proven", message)
    elif first == k:
        yield Verdict("GA203", "refuted", f"The windows hold {shown} micro-batches.")
    else:
        yield Verdict("GA203", "not measured", f"The windows hold {shown} micro-batches, no pattern of an early step.")


def _one_divisor(windows: list[Window]) -> bool:
    """Windows of different length that are divided by the same number: then the length is not meant. A script that
    fills windows up to a number of tokens divides each by its own."""
    found = [terms(window) for window in windows]
    if not all(found) or not found[1][0].mass:
        return False
    return is_close(found[0][0].mass / found[1][0].mass, windows[0].length / windows[1].length, 0.01)


def parts_of(measured: Measured) -> list[Part]:
    return [part for window in measured.windows for part in window.parts if part.micro_batches]


def why_short(parts: list[Part]) -> str:
    if not parts:
        return "No backward ran."
    return "Every window had one micro-batch; inside of a longer one there is more to see."


def times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
