"""What the ranks of one experiment prove together: the world's factor, the denominator, ranks that go apart."""

from collections.abc import Iterator

from firstfault.prove.experiments.signature import (
    Fault,
    Limits,
    Measured,
    Missing,
    counts,
    is_factor,
    number,
    weight_ratio,
)


def findings(measured: Measured, ranked: Measured, limits: Limits, known: set[str]) -> Iterator[Fault | Missing]:
    """Faults that only several ranks show; ``known`` are those that one process has shown already."""
    uneven, even, world = ranked["variable"], ranked["uniform"], measured["ranks"]
    if not uneven["finite"] or uneven["error"] is None:
        yield Missing("The gradient of the ranks is no finite number.", "Let batch(n) give other samples.")
        return
    if limits.apart(uneven["apart"]):
        reason = f"The ranks step with gradients that differ by {number(uneven['apart'])}."
        yield Fault("ranks-apart", "Ranks step with different gradients", ("GA303",), reason)
        return
    if even is None:
        yield Missing("No control with equal counts could be made for the ranks.", "Add uniform(n) to the probe.")
        return
    if limits.apart(even["error"]):
        if not limits.same(even["rescaled"]):
            yield _elsewhere(even)
            return
        yield from _factor(measured, even, world, limits)
    yield from _denominator(uneven, limits, known, world)


def _elsewhere(even: Measured) -> Missing:
    off = f"{number(even['error'])} (cosine {number(even['cosine'])})"
    return Missing(
        f"On the control the ranks' gradient differs from C by {off}, and no known signature of ranks fits.",
        "Look first at what one process shows.",
    )


def _factor(measured: Measured, even: Measured, world: int, limits: Limits) -> Iterator[Fault]:
    alone = measured["uniform"]["B/C"]["ratio"] if measured["uniform"] and measured["uniform"]["B/C"] else 1.0
    ratio = even["ratio"] / (alone or 1.0)
    what = f"On the control {world} ranks give {number(ratio)} times the gradient of one process"
    if is_factor(ratio, 1 / world, limits):
        reason = f"{what}: 1/{world}. DistributedDataParallel has averaged what was already divided by all targets."
        yield Fault("world-factor", "The loss lacks the factor of the world size", ("GA302",), reason)
    elif not is_factor(ratio, 1, limits):
        yield Fault("world-factor", "The ranks change the scale of the gradient", ("GA302",), f"{what}; 1 is right.")


def _denominator(uneven: Measured, limits: Limits, known: set[str], world: int) -> Iterator[Fault | Missing]:
    off, found = uneven["rescaled"], uneven["counts"]
    if max(found) - min(found) <= 1e-9 * max(found):
        if max(found) > 1 and not known:
            fact = f"Every rank counts {found[0]:g} targets in each micro-batch, so their denominator was not tested."
            yield Missing(fact, "Let batch(n) give samples of unequal length.")
        return
    if limits.apart(off) and "token-denominator" not in known:
        ratio = weight_ratio(uneven)
        weight = f" The weights of a target have the ratio {ratio:.4f}, 1 is right." if ratio else ""
        reason = f"Micro-batches of {world} ranks count {counts(found)} targets.{weight} The error is {number(off)}."
        yield Fault("rank-denominator", "Each rank divides by its own targets, not by those of all", ("GA301",), reason)
