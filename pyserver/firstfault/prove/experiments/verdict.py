"""What the numbers of an experiment mean: which fault they prove, that there is none, or what they leave open.

A fault has a signature: how B differs from its reference on the samples as they are, and on the control whose
micro-batches all count the same. The reference is C, the stated objective; A, the samples at once, where none is
stated, or where A itself is off (what both have in common is then named apart).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from firstfault.prove.experiments import ranked as of_ranks
from firstfault.prove.experiments.signature import (
    Fault,
    Limits,
    Measured,
    Missing,
    counts,
    is_factor,
    limits_of,
    number,
    scale_fault,
    weight_ratio,
    weights,
)

Finding = Fault | Missing


class Verdict(NamedTuple):
    verdict: str  # "fault", "no-fault" or "inconclusive"
    faults: list[Fault]
    missing: list[Missing]
    notes: list[str]
    limits: Limits
    measured: Measured
    ranked: Measured | None


def judge(measured: Measured, ranked: Measured | None = None) -> Verdict:
    """The verdict, with its reasons in numbers."""
    limits = limits_of(measured)
    found = list(_blocked(measured, limits)) or list(_findings(measured, limits))
    if ranked is not None and not (found and isinstance(found[0], Missing)):
        found += of_ranks.findings(measured, ranked, limits, {each.code for each in found if isinstance(each, Fault)})
    faults = [each for each in found if isinstance(each, Fault)]
    missing = [each for each in found if isinstance(each, Missing)]
    word = "fault" if faults else "inconclusive" if missing else "no-fault"
    return Verdict(word, faults, missing, list(_notes(measured, ranked)), limits, measured, ranked)


# ------------------------------------------------------------------------------------------ what forbids any verdict


def _blocked(measured: Measured, limits: Limits) -> Iterator[Finding]:
    at_once, in_parts, wanted = measured["variable"]["finite"]
    if at_once and wanted and not in_parts:
        yield Fault("not-finite", "A micro-batch gives a gradient that is no number", ("GA109",), _empty(measured))
    elif not (at_once and wanted):
        yield Missing("The gradient of all samples at once is no finite number.", "Let batch(n) give other samples.")
    elif measured["variable"]["B/A"]["error"] is None:
        yield Missing(
            "The gradient of all samples at once is zero.", "Let build() and batch(n) give a model that learns."
        )
    if measured["coarse"]:
        fact = "A part of the model computes in 16 bits, whose rounding is larger than many faults."
        yield Missing(fact, "Let build() give a model in float32; autocast is off already.")
    noise = measured["noise"]
    if (noise["reseeded"] or 0.0) >= max(1e-8 if limits.double else 5e-5, 10 * (noise["repeated"] or 0.0)):
        yield Missing(
            f"Random with dropout off: with other random numbers A is {number(noise['reseeded'])} off itself.",
            "Turn off in build() what draws random numbers (noise, drop path, sampling).",
        )
    elif max(noise["repeated"] or 0.0, noise["reordered"] or 0.0) >= 1e-4:
        how = "repeated" if (noise["repeated"] or 0.0) >= 1e-4 else "with its samples in another order"
        yield Missing(
            f"A {how} is {number(noise['repeated'] if how == 'repeated' else noise['reordered'])} off itself.",
            "Give a build() and batch(n) whose gradient does not change from run to run or with the order of samples.",
        )


def _empty(measured: Measured) -> str:
    found = measured["variable"]["counts"]
    if found and not all(found):
        return f"Micro-batches count {counts(found)} targets; the mean over none is NaN."
    return "All samples at once give a finite gradient, the micro-batches do not."


# ------------------------------------------------------------------------------------------ one process


def _findings(measured: Measured, limits: Limits) -> Iterator[Finding]:
    ledger = measured["ledger"]
    if ledger["steps_at_once"] and ledger["steps"] != 1:
        yield _steps_fault(ledger["steps"], measured["micro_batches"])
        return  # the gradient of the first step is not that of the window; that is no second fault
    common = _common_mode(measured, limits)
    if common:
        yield common
    if measured["micro_batches"] > 1:
        against = "A" if common or measured["objective"] is None else "C"
        yield from _window(measured, limits, against)
        yield from _batchnorm(measured, limits)
    yield from _ledger(measured, limits)


def _common_mode(measured: Measured, limits: Limits) -> Fault | None:
    """Already one batch differs from the objective: A and B share the fault."""
    for data in (measured["variable"], measured["uniform"]):
        off = data["A/C"] if data else None
        if off and limits.apart(off["error"]):
            same = limits.same(data["B/A"]["error"])
            reason = (
                f"A differs from C by {number(off['error'])} (ratio {number(off['ratio'])}, cosine "
                f"{number(off['cosine'])}){', and B equals A' if same else ''}: another count (labels shifted or not), "
                "or a term of the loss that objective() leaves out."
            )
            return Fault("common-mode", "One whole batch already differs from the stated objective", ("GA108",), reason)
    return None


def _window(measured: Measured, limits: Limits, against: str) -> Iterator[Finding]:
    uneven, even = measured["variable"], measured["uniform"]
    lost = _lost(uneven)
    if lost:
        yield _lost_fault(uneven, lost)
        return
    if even is not None and limits.apart(even[f"B/{against}"]["error"]):
        if not limits.same(even["rescaled"][against]):
            yield _repeated_term(measured, limits, against) or _other_variance(even, limits, against)
            return
        yield scale_fault(even[f"B/{against}"]["ratio"], measured["micro_batches"], against, limits)
    yield from _denominator(measured, limits, against)


def _lost(data: Measured) -> list[int]:
    """The micro-batches, from 0, whose gradient is not in what the loop left."""
    shares, numbers = data["shares"], data["counts"]
    if shares is None or data["unexplained"] > 1e-3:
        return []
    largest = max(abs(each) for each in shares)
    held = [numbers is None or numbers[place] > 0 for place in range(len(shares))]
    return [place for place, share in enumerate(shares) if held[place] and abs(share) < 1e-6 * largest]


def _lost_fault(data: Measured, lost: list[int]) -> Fault:
    size = len(data["shares"])
    names = counts([float(place + 1) for place in lost])
    if lost == list(range(size - 1)):
        reason = f"Of {size} micro-batches only the last is in the gradient: it is cleared on the way."
        return Fault("window-wiped", "Gradients are cleared inside the window", ("GA204", "GA205"), reason)
    reason = f"Of {size} micro-batches number {names} is not in the gradient of the optimizer's step."
    return Fault("loop-fault", "The step does not hold the whole window", ("GA203", "GA201"), reason)


def _repeated_term(measured: Measured, limits: Limits, against: str) -> Fault | None:
    """A term without targets, a penalty, is in the gradient as often as there are micro-batches."""
    growth, size = measured["growth"], measured["micro_batches"]
    if not growth or growth["error"] is None or 1 - growth["cosine"] > 1e-6:
        return None
    if not is_factor(growth["ratio"], size - 1, limits):
        return None
    reason = (
        f"On the control {size} micro-batches add {number(growth['ratio'])} times what two add, in one direction: "
        f"a term is counted once for each micro-batch. B differs from {against} by "
        f"{number(measured['uniform'][f'B/{against}']['error'])}."
    )
    return Fault("repeated-term", "A term of the loss is not divided by the micro-batches", ("GA107",), reason)


def _other_variance(even: Measured, limits: Limits, against: str) -> Finding:
    """B points elsewhere although every micro-batch counts the same, BatchNorm is frozen and dropout is off."""
    pair = even[f"B/{against}"]
    off = f"On the control B differs from {against} by {number(pair['error'])} (cosine {number(pair['cosine'])})"
    explained = even["unexplained"] is not None and limits.same(even["unexplained"])
    if even["additive"] is not None and limits.apart(even["additive"]):
        reason = f"{off}: objective() of the whole batch is no sum over micro-batches ({number(even['additive'])} off)."
        return _coupled(reason)
    if explained and max(even["shares"]) - min(even["shares"]) > 1e-3 * max(even["shares"]):
        reason = f"{off}: equal micro-batches have shares {', '.join(number(each) for each in even['shares'])}."
        return Fault("loop-fault", "Equal micro-batches weigh differently", ("GA201", "GA203"), reason)
    if even["additive"] is None and explained and even["counts"] is not None:
        reason = f"{off}, though it is the fair mean of the micro-batches: samples of one batch depend on each other."
        return _coupled(reason)
    if even["additive"] is not None and limits.same(even["additive"]) and limits.same(even["A/C"]["error"]):
        reason = f"{off}, while all samples at once give C. No known signature fits: look at what the loop adds."
        return Fault("other", "The accumulated gradient is not that of the objective", (), reason)
    return Missing(f"{off}, and none of the known signatures fits.", "Add objective(model, batch) and uniform(n).")


def _coupled(reason: str) -> Fault:
    return Fault("coupled-loss", "The loss couples the samples of a batch", ("CL601", "CL602"), reason)


def _denominator(measured: Measured, limits: Limits, against: str) -> Iterator[Finding]:
    uneven, even = measured["variable"], measured["uniform"]
    off, found = uneven["rescaled"][against], uneven["counts"]
    differ = found is not None and max(found) - min(found) > 1e-9 * max(found)
    if limits.same(off):
        yield from _untested(measured, differ)
    elif not limits.apart(off):
        yield Missing(f"B differs from {against} by {number(off)}, between rounding and a fault.", "Take more samples.")
    elif differ or (found is None and even is not None and even["kind"] != "repeated"):
        yield Fault("token-denominator", *_DENOMINATOR, _denominator_reason(uneven, even, off, against))
    elif uneven["additive"] is not None and limits.apart(uneven["additive"]):
        yield _coupled(f"B differs from {against} by {number(off)}: objective() is no sum over micro-batches.")
    else:
        yield Missing(
            f"B differs from {against} by {number(off)} on the samples of batch(n); what each counts is not known.",
            "Add objective(model, batch) -> (sum, count), and uniform(n).",
        )


_DENOMINATOR = ("Each micro-batch divides by its own targets, not by those of the window", ("GA101", "GA105", "GA106"))


def _denominator_reason(uneven: Measured, even: Measured | None, off: float, against: str) -> str:
    text = ""
    if uneven["counts"] is not None:
        text = f"Micro-batches count {counts(uneven['counts'])} targets. "
        ratio, each = weight_ratio(uneven), weights(uneven)
        if ratio and each:
            text += f"A target weighs from {number(min(each))} to {number(max(each))}: ratio {ratio:.4f}, 1 is right. "
    text += f"B differs from {against} by {number(off)}"
    if even is None:
        return f"{text}."
    rest = number(even["rescaled"][against])
    scaled = "only that factor is left" if abs((even[f"B/{against}"]["ratio"] or 1.0) - 1) > 1e-3 else "it is equal"
    return f"{text}; with equal counts {scaled} ({rest})."


def _untested(measured: Measured, differ: bool) -> Iterator[Finding]:
    found = measured["variable"]["counts"]
    per_sample = measured["samples"] / measured["micro_batches"]
    if differ or not measured["counts_can_vary"] or (found is not None and all(each == per_sample for each in found)):
        return  # different counts were compared; or every sample is one target, or nothing could make them differ
    if found is None:
        yield Missing("It is not known what the loss divides by.", "Add objective(model, batch) -> (sum, count).")
        return
    fact = f"Every micro-batch counts {found[0]:g} targets, so the denominator was not put to the test."
    how = "Let batch(n) give samples of unequal length; if yours never differ, nothing else is open."
    yield Missing(fact, how)


def _batchnorm(measured: Measured, limits: Limits) -> Iterator[Finding]:
    found = measured["batchnorm"]
    if found is None or not limits.apart(found["pair"]["error"]):
        return
    layers, off = _layers(found["layers"]), number(found["pair"]["error"])
    sets = [each for each in (measured["uniform"], measured["variable"]) if each]
    frozen = next(each for each in sets if each["kind"] == found["samples"])
    if not limits.same(frozen["rescaled"]["A"]):
        yield Missing(f"What {layers} adds cannot be told apart from the rest.", "Add uniform(n) to the probe.")
        return
    reason = f"In training mode B differs from A by {off}; with {layers} frozen it does not."
    updates, momentum = found["updates"], found["momentum"]
    if updates and momentum:
        acts = 1 - (1 - momentum) ** updates
        reason += f" Running statistics get {updates} updates a step: momentum {momentum:g} acts as {acts:.4g}."
    yield Fault("batchnorm", "BatchNorm normalises each micro-batch by itself", ("BN501",), reason)


def _layers(names: list[str]) -> str:
    return names[0] or "BatchNorm" if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _steps_fault(steps: int, size: int) -> Fault:
    reason = f"The optimizer steps {steps} times in a window of {size} micro-batches; once is right."
    return Fault("loop-fault", _LOOP, ("GA203", "GA214"), reason)


_LOOP = "The loop does not do once per window what it should"


def _ledger(measured: Measured, limits: Limits) -> Iterator[Finding]:
    """What a gradient does not show: how often things happened in one window."""
    ledger, size = measured["ledger"], measured["micro_batches"]
    if ledger["rates"] != ledger["rates_at_once"]:
        rates = [", ".join(f"{each:g}" for each in ledger[name]) for name in ("rates", "rates_at_once")]
        reason = (
            f"After one window of {size} micro-batches the learning rate is {rates[0]}, after one batch {rates[1]}."
        )
        yield Fault("loop-fault", _LOOP, ("GA207",), reason)
    if limits.apart(ledger["next_window"]):
        reason = f"The next window starts with gradients of this one: {number(ledger['next_window'])} off."
        yield Fault("loop-fault", _LOOP, ("GA206", "GA201"), reason)


# ------------------------------------------------------------------------------------------ what a reader must know


def _notes(measured: Measured, ranked: Measured | None) -> Iterator[str]:
    if measured["objective"] is None:
        yield "Without objective() B is compared with A, and a fault that both share is not seen."
    elif measured["objective"] != "objective()":
        yield f"The objective is the {measured['objective']}."
    if measured["recipe"] == "plain":
        yield "The probe has no accumulate(): model(**batch).loss / micro-batches was tested, not a loop of yours."
    if measured["left_out"]:
        yield f"Left out, since it changes gradients on purpose: {', '.join(measured['left_out'])}."
    if measured["dropout"] and (measured["dropout"]["error"] or 0.0) > 1e-6:
        off = number(measured["dropout"]["error"])
        yield f"Dropout was off. With it on, A and B differ by {off} on the control: that is randomness, no fault."
    if measured["precision"] != "float64":
        yield f"Measured in {measured['precision']} with wider thresholds. {measured['precision_reason']}"
    elif measured["leaked"]:
        yield "A part of the model computes in less than float64, so the thresholds are those of float32."
    even = measured["uniform"]
    if even and even["kind"] == "repeated":
        yield "The control is one micro-batch repeated: what differs only between inputs is not seen on it."
    if measured["batchnorm"]:
        yield from _statistics(measured["batchnorm"])


def _statistics(found: dict[str, Any]) -> Iterator[str]:
    mean, variance = found["running_mean"], found["running_var"]
    if mean is not None and variance is not None:
        yield (
            f"One step moves BatchNorm's running mean by {number(mean)} and its running variance by {number(variance)} "
            "off what the whole batch does (relative)."
        )
