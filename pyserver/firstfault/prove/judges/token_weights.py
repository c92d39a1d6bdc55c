"""Ratio and mass of the target weights: means of means, and factors that are missing or there twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from firstfault.prove.gradients import difference
from firstfault.prove.judges.coupled import repeats
from firstfault.prove.measured import Measured
from firstfault.prove.verdict import Verdict, judge
from firstfault.prove.weights import RATIO, Row, Term, is_close, spread, terms, usual_length

_MEANS = ("GA101", "GA105", "GA106", "GA301")
_SCALES = ("GA102", "GA103", "GA104", "GA302")
_TRAINER = ("GA401", "GA402", "GA403")  # a Trainer that leaves its own division out: the same scale as GA102
_NO_LOSS = (
    "No watched loss function took part (cross_entropy, nll_loss, binary_cross_entropy, ctc_loss, kl_div, mse_loss and "
    "their relatives in torch.nn.functional); a fused loss, a compiled one or one of your own "
    "is not seen."
)


@judge
def means_of_means(measured: Measured) -> Iterator[Verdict]:
    """Do all targets of a window weigh the same, though the micro-batches (or ranks) hold different numbers?"""
    known, reason = _known(measured)
    if reason:
        yield from (Verdict(code, "not measured", reason) for code in _MEANS)
        return
    for place in dict.fromkeys((term.file, term.line) for term in known):
        yield from _ratio([term for term in known if (term.file, term.line) == place])


def _ratio(at_one_line: list[Term]) -> Iterator[Verdict]:
    worst = max(at_one_line, key=lambda term: term.ratio)
    file, line = worst.file, worst.line
    telling = [term for term in at_one_line if term.count_ratio >= RATIO and len(term.rows) > 1]
    if any(term.one_by_one for term in at_one_line):
        why = "The script weighs the targets of one micro-batch one by one, so their weights need not be equal."
        yield from (Verdict(code, "not measured", why, file, line) for code in _MEANS)
    elif worst.ratio >= RATIO and worst in telling and _is_mean_of_means(worst):
        code = _name(worst)
        yield Verdict(code, "proven", _unequal(worst), file, line, also=tuple(each for each in _MEANS if each != code))
    elif worst.ratio >= RATIO:
        why = f"Targets weigh up to {worst.ratio:.4g} times as much as others, but not as a mean of means would."
        yield from (Verdict(code, "not measured", why, file, line) for code in _MEANS)
    elif not telling:
        why = _same_counts(worst)
        yield from (Verdict(code, "not measured", why, file, line) for code in _MEANS)
    else:
        shown = max(telling, key=lambda term: term.count_ratio)
        message = f"All targets weigh the same: {_counts(shown)} targets, ratio of the weights {shown.ratio:.4f}."
        yield from (Verdict(code, "refuted", message, file, line) for code in _MEANS)


def _is_mean_of_means(term: Term) -> bool:
    """Each micro-batch has the same mass, so a target weighs the more, the fewer there are."""
    masses = [abs(row.loss.mass) for row in term.rows]
    return max(masses) / min(masses) - 1 <= 10 * term.tolerance


def _name(term: Term) -> str:
    if any(row.loss.class_weights for row in term.rows):
        return "GA105"
    if all(row.loss.reduction == "none" for row in term.rows):
        return "GA106"
    return "GA301" if all(spread(counts) < RATIO for counts in _by_rank(term)) else "GA101"


def _by_rank(term: Term) -> list[list[float]]:
    ranks = dict.fromkeys(row.rank for row in term.rows)
    return [[row.loss.counted for row in term.rows if row.rank == rank] for rank in ranks]


def _unequal(term: Term) -> str:
    heavy = max(term.rows, key=lambda row: abs(row.loss.weight))
    light = min(term.rows, key=lambda row: abs(row.loss.weight))
    return (
        f"One target weighs up to {term.ratio:.4g} times as much as another: {_place(heavy, term)} has "
        f"{_units(heavy)} of weight {heavy.loss.weight:.4g}, {_place(light, term)} {_units(light)} of weight "
        f"{light.loss.weight:.4g}; in a mean over all of them each weighs {term.mass / term.counted:.4g}."
        f"{difference(term.window)}"
    )


def _place(row: Row, term: Term) -> str:
    rank = f" of rank {row.rank}" if term.window.world > 1 else ""
    return f"micro-batch {row.micro_batch + 1}{rank}"


def _units(row: Row) -> str:
    number = row.loss.targets
    return f"{number:,} target{'' if number == 1 else 's'}"


def _same_counts(term: Term) -> str:
    if len(term.rows) == 1:
        return "The window has one micro-batch, so there is nothing to compare."
    return (
        f"Every micro-batch with targets had the same number of them ({_counts(term)}), so a mean of means is no other "
        "than the mean over all; data of different lengths would tell."
    )


def _counts(term: Term) -> str:
    low, high = (pick(row.loss.counted for row in term.rows) for pick in (min, max))
    return f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"


# ------------------------------------------------------------------------------------------------------------- mass


@judge
def scales(measured: Measured) -> Iterator[Verdict]:
    """Do the weights of a window add up to 1?"""
    known, reason = _known(measured)
    if reason:
        yield from (Verdict(code, "not measured", reason) for code in _SCALES)
        return
    usual = usual_length(measured.regular)
    full = [term for term in known if term.window.length == usual]
    full.sort(key=lambda term: (term.window.number, -len(term.rows), -abs(term.mass)))
    k, world = full[0].micro_batches, full[0].window.world
    unknown = _why_unknown(full, k, world)
    if unknown:
        yield from (Verdict(code, "not measured", unknown) for code in _SCALES)
        return
    first = full[0]
    if _is_ambiguous(full, k):
        why = (
            f"{k} losses beside each other and {k} micro-batches: whole losses divided by {k}, or shares, is not known."
        )
        yield from (Verdict(code, "not measured", why) for code in _SCALES)
        return
    if _is_right(full):
        message = (
            f"Weight x targets adds up to {_right_mass(full):.4g} over {_window_of(k, world)}: the scale is right."
        )
        codes = (*((*_SCALES[:3], *_TRAINER) if k > 1 else ()), *(_SCALES[3:] if world > 1 else ()))
        yield from (Verdict(code, "refuted", message, first.file, first.line) for code in codes)
        yield from _alone(k, world)
        return
    if not _is_alike(full):
        told = ", ".join(f"{term.mass:.4g}" for term in _by_window(full)[0])
        why = f"Several losses have scales of their own: weight x targets adds up to {told}."
        yield from (Verdict(code, "not measured", why) for code in _SCALES)
        return
    yield from _named(first, k, world)


def _alone(k: int, world: int) -> Iterator[Verdict]:
    if k == 1:
        why = "A window has one micro-batch here, so there is nothing to divide by."
        yield from (Verdict(code, "not measured", why) for code in _SCALES[:3])
    if world == 1:
        yield Verdict("GA302", "not measured", "One rank ran; the factor of the ranks shows with two or more.")


def _why_unknown(full: list[Term], k: int, world: int) -> str | None:
    if world > 1 and not all(part.values.get("averaged_over_ranks") is not None for part in full[0].window.parts):
        return "It is not known how the ranks join their gradients, so the scale of the sum is not known either."
    if any(repeats(part) for part in full[0].window.parts):
        return "Each backward of a step has all of its examples, and brings the part of some: weights tell nothing."
    masses = [term.mass for term in full if (term.file, term.line) == (full[0].file, full[0].line)]
    if max(masses) - min(masses) > 0.05 * max(map(abs, masses)):
        return (
            f"The windows differ: weight x targets adds up to {min(masses):.4g} in one, {max(masses):.4g} in another."
        )
    return None


def _is_right(full: list[Term]) -> bool:
    """One loss of mass 1, or several that share it: a loss beside it may have a weight of its own."""
    return all(
        any(is_close(term.mass, 1, term.tolerance) for term in group)
        or is_close(sum(term.mass for term in group), 1, group[0].tolerance)
        for group in _by_window(full)
    )


def _right_mass(full: list[Term]) -> float:
    group = _by_window(full)[0]
    return min([*(term.mass for term in group), sum(term.mass for term in group)], key=lambda mass: abs(mass - 1))


def _is_ambiguous(full: list[Term], k: int) -> bool:
    """Losses of mass 1 each, as many as micro-batches: whole ones, or shares of 1/k that nothing divided."""
    group = _by_window(full)[0]
    return len(group) == k > 1 and all(is_close(term.mass, 1, term.tolerance) for term in group)


def _is_alike(full: list[Term]) -> bool:
    masses = [term.mass for term in _by_window(full)[0]]
    return max(masses) - min(masses) <= 0.01 * abs(max(masses, key=abs))


def _by_window(full: list[Term]) -> list[list[Term]]:
    found: dict[int, list[Term]] = {}
    for term in full:
        found.setdefault(term.window.number, []).append(term)
    return list(found.values())


def _named(term: Term, k: int, world: int) -> Iterator[Verdict]:
    name = _scale_name(term, k, world)
    if name is None:
        why = (
            f"Weight x targets adds up to {term.mass:.4g} over {_window_of(k, world)}, which none of the known faults "
            "of scale makes; the loss may have a factor of its own, or count something else than targets."
        )
        yield from (Verdict(code, "not measured", why, term.file, term.line) for code in _SCALES)
        return
    codes, message = name
    yield Verdict(codes[0], "proven", message, term.file, term.line, also=codes[1:])
    others = f"Weight x targets adds up to {term.mass:.4g}, which is another fault of scale."
    yield from (Verdict(code, "refuted", others, term.file, term.line) for code in _SCALES if code not in codes)


def _scale_name(term: Term, k: int, world: int) -> tuple[tuple[str, ...], str] | None:
    summed = f"weight x targets adds up to {term.mass:.4g} over {_window_of(k, world)}, and should be 1"
    if k > 1 and is_close(term.mass, k, term.tolerance):
        return ("GA102", *_TRAINER), f"The loss is not divided by the {k} micro-batches: {summed}."
    means = all(row.loss.reduction == "mean" for row in term.rows)
    if k == world > 1 and is_close(term.mass, 1 / k, term.tolerance):
        codes = ("GA103", "GA104", "GA302") if means else ("GA302", "GA103", "GA104")
        either = f"either the loss is divided by the {k} micro-batches once too often, or the mean over {k} ranks stays"
        return codes, f"{summed[0].upper()}{summed[1:]}: {either}."
    if k > 1 and is_close(term.mass, 1 / k, term.tolerance):
        twice = ("GA103", "GA104") if means else ("GA104", "GA103")
        return twice, f"The loss is divided by the {k} micro-batches once too often: {summed}."
    if world > 1 and is_close(term.mass, 1 / world, term.tolerance):
        return ("GA302",), f"The mean over {world} ranks is not undone: {summed}."
    return None


def _window_of(k: int, world: int) -> str:
    ranks = f" on each of {world} ranks" if world > 1 else ""
    return f"{k} micro-batch{'' if k == 1 else 'es'}{ranks}"


def _known(measured: Measured) -> tuple[list[Term], str | None]:
    """The losses of all complete windows, or why there are none."""
    windows = measured.regular
    if not windows:
        return [], _no_window(measured)
    found = [term for window in windows for term in terms(window)]
    noted = [why for probe, why in measured.notes if probe == "token_weights"]
    if not found:
        return [], f"Not seen: {noted[0]}." if noted else _NO_LOSS
    return found, None


def _no_window(measured: Measured) -> str:
    skipped: Iterable[bool] = (part.skipped for window in measured.windows for part in window.parts)
    if any(skipped):
        return "The gradient scaler left out every step (infinite gradients); measure more windows."
    return f"No window was complete. {measured.ended}"
