"""Where the data ends: what is left over, short windows, a window that never closes, the length of the schedule."""

from __future__ import annotations

from collections.abc import Iterator

from firstfault.prove.measured import Event, Measured, Part
from firstfault.prove.verdict import Verdict, judge
from firstfault.prove.weights import is_close, terms, usual_length

_MANY = 4  # times as many micro-batches as the windows before; then the open one is no longer about to close
_NONE = 16  # micro-batches without any step; fewer may be a script that was ended early


@judge
def leftover(measured: Measured) -> Iterator[Verdict]:
    """GA201: micro-batches that no step used, or that entered the first step of the next epoch."""
    stepped = [part for window in measured.complete for part in window.parts]
    open_ = [part for window in measured.windows for part in window.parts if not part.stepped and part.micro_batches]
    usual = usual_length(measured.regular)
    mixed = [part for part in stepped if part.restarts]
    odd = [part for part in mixed if _cleared(part) or len(part.micro_batches) > usual > 0]
    if odd:
        yield Verdict("GA201", "proven", _mixed(odd[0]))
    elif mixed:
        yield _across(mixed[0], usual)
    elif measured.finished and stepped and open_ and len(open_[0].micro_batches) <= usual_length(measured.complete):
        message = (
            f"The script ended with {_micro_batches(len(open_[0].micro_batches))} that no step used; the steps before "
            f"used {len(stepped[0].micro_batches)} each."
        )
        yield Verdict("GA201", "proven", message)
    else:
        yield _no_leftover(measured, stepped)


def _cleared(part: Part) -> bool:
    return part.micro_batches[part.restarts[-1].after - 1].dropped


def _across(part: Part, usual: int) -> Verdict:
    if not usual:
        return Verdict("GA201", "not measured", "No window lay within one epoch, so the usual number is not known.")
    message = (
        f"A loader began anew inside of a window, which holds {_micro_batches(len(part.micro_batches))} as others do."
    )
    return Verdict("GA201", "refuted", message)


def _mixed(part: Part) -> str:
    at = part.restarts[-1].after
    k = len(part.micro_batches)
    if _cleared(part):
        return f"{_micro_batches(at)} at the end of an epoch reached no step: their gradients were cleared."
    return f"A window holds {_micro_batches(at)} of one epoch and {k - at} of the next."


def _no_leftover(measured: Measured, stepped: list[Part]) -> Verdict:
    begun = [event for part in stepped for event in part.named("data_begin")]
    lengths = [event.details["length"] for event in begun if event.details.get("length")]
    k = max((len(part.micro_batches) for part in stepped), default=0)
    again = [event for event in begun if event.details.get("again")]
    if again and lengths and k and lengths[0] % k:
        short = lengths[0] % k
        return Verdict(
            "GA201", "refuted", f"An epoch of {lengths[0]} micro-batches ended with a step for the last {short}."
        )
    if again and lengths and k:
        return Verdict(
            "GA201", "not measured", f"An epoch has {lengths[0]} micro-batches, a multiple of {k}: none is left."
        )
    if lengths and k:
        needed = _windows_of_an_epoch(measured) + 1
        return Verdict("GA201", "not measured", f"No epoch ended; --windows {needed} reaches beyond the first.")
    return Verdict("GA201", "not measured", "The end of an epoch was not seen.")


def _windows_of_an_epoch(measured: Measured) -> int:
    """How many windows it takes to the end of the data; 0 where that is not known."""
    parts = [part for window in measured.complete for part in window.parts]
    lengths = [event.details.get("length") for part in parts for event in part.named("data_begin")]
    known = [int(each) for each in lengths if each]
    k = usual_length(measured.complete)
    return -(-max(known) // k) if known and k else 0


@judge
def short_window(measured: Measured) -> Iterator[Verdict]:
    """GA202: fewer micro-batches, and still divided by the full number."""
    windows = [window for window in measured.regular if terms(window)]
    windows = [window for window in windows if window.parts[0].optimizer == windows[-1].parts[0].optimizer]
    k = usual_length(windows)
    short = [window for window in windows[1:] if window.length < k]
    full = [window for window in windows if window.length == k]
    if not short or not full:
        reach = _windows_of_an_epoch(measured)
        hint = f"--windows {reach} reaches" if reach else "more windows reach"
        yield Verdict("GA202", "not measured", f"No window was shorter than the others; {hint} the end of an epoch.")
        return
    last = short[-1]
    r, mass, usual = last.length, terms(last)[0].mass, terms(full[0])[0].mass
    summed = f"weight x targets adds up to {mass:.4g} in a window of {_micro_batches(r)}, to {usual:.4g} in one of {k}"
    if is_close(mass, usual * r / k, 0.01):
        yield Verdict("GA202", "proven", f"A short window is divided by the full number: {summed}.")
    elif is_close(mass, usual, 0.01):
        yield Verdict("GA202", "refuted", f"A short window is divided by its own number: {summed}.")
    else:
        yield Verdict("GA202", "not measured", f"Neither the full nor the real number: {summed}.")


@judge
def never_closes(measured: Measured) -> Iterator[Verdict]:
    """GA214: backward goes on, and no step comes."""
    lengths = [window.length for window in measured.complete]
    open_ = [len(p.micro_batches) for window in measured.windows for p in window.parts if not p.stepped]
    backwards = max([measured.open_backwards, *open_])
    if not lengths and backwards >= _NONE:
        message = f"{backwards} or more micro-batches ran backward, and the optimizer never stepped."
        yield Verdict("GA214", "proven", message, quiet=not measured.finished)
    elif lengths and backwards >= max(_MANY * max(lengths), _NONE):
        message = f"After {len(lengths)} steps {backwards} or more micro-batches ran backward without another."
        yield Verdict("GA214", "proven", message, quiet=True)
    elif len(lengths) > 1:
        yield Verdict("GA214", "refuted", f"{len(lengths)} windows closed, after {max(lengths)} micro-batches at most.")
    else:
        yield Verdict("GA214", "not measured", f"Too few micro-batches ran to tell. {measured.ended}")


@judge
def schedule_length(measured: Measured) -> Iterator[Verdict]:
    """GA208: the schedule steps once a window, and is as long as the micro-batches."""
    parts = [part for window in measured.complete for part in window.parts if part.rank == 0]
    begun = [event for part in parts for event in part.named("data_begin") if event.details.get("length")]
    schedules = [event for part in parts for event in part.named("schedule") if event.details.get("length")]
    k = max((len(part.micro_batches) for part in parts), default=0)
    if not begun or not schedules or k < 2 or any(part.inside("schedule") for part in parts):
        why = "It takes a loader and a schedule whose lengths are known, and windows of more than one micro-batch."
        yield Verdict("GA208", "not measured", why)
        return
    yield _lengths(schedules[-1], int(begun[0].details["length"]), k)


def _lengths(schedule: Event, epoch: int, k: int) -> Verdict:
    length, steps = int(schedule.details["length"]), -(-epoch // k)
    told = (
        f"{schedule.details['scheduler']} is made for {length:,} steps; an epoch has {epoch:,} micro-batches, "
        f"which make {steps:,} steps"
    )
    if length % epoch == 0 and length % steps:
        return Verdict(
            "GA208", "proven", f"{told}: it is as long as micro-batches, and steps once for {k}.", quiet=True
        )
    if length % steps == 0 and length % epoch:
        return Verdict("GA208", "refuted", f"{told}.")
    return Verdict("GA208", "not measured", f"{told}: how many epochs are meant is not known.")


def _micro_batches(number: int) -> str:
    return f"{number} micro-batch{'' if number == 1 else 'es'}"
