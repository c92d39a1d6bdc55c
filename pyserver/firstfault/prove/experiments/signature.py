"""Words of a verdict: a fault, what is missing, the thresholds, and which factor a ratio of gradients is."""

from typing import Any, NamedTuple

Measured = dict[str, Any]


class Fault(NamedTuple):
    code: str
    title: str
    rules: tuple[str, ...]  # of `firstfault check`, which explain it and may have a fix
    reason: str


class Missing(NamedTuple):
    """What the experiment leaves open, and how it would be answered."""

    fact: str
    how: str


class Limits(NamedTuple):
    """Relative errors up to ``equal`` are rounding, from ``different`` on they are not; between them nothing is said.

    In double precision right recipes stay below 3e-15 and the smallest fault that was tried, 4000 tokens beside 4001,
    makes 5e-5. In single precision rounding reaches 1e-6. Both move up with the noise that this probe itself shows.
    """

    equal: float
    different: float
    double: bool

    def same(self, error: float | None) -> bool:
        return error is not None and error <= self.equal

    def apart(self, error: float | None) -> bool:
        return error is not None and error >= self.different


def limits_of(measured: Measured) -> Limits:
    noise = measured["noise"]
    own = 100 * max(noise["repeated"] or 0.0, noise["reordered"] or 0.0)
    if measured["precision"] == "float64" and not measured["leaked"]:
        return Limits(max(1e-12, own), max(1e-8, own), True)
    return Limits(5e-6, max(5e-5, own), False)


def is_factor(ratio: float, factor: float, limits: Limits) -> bool:
    return abs(ratio / factor - 1) <= (1e-6 if limits.double else 1e-4)


def scale_fault(ratio: float, steps: int, reference: str, limits: Limits) -> Fault:
    """The fault whose only effect is a factor."""
    what = f"On the control B is {number(ratio)} times {reference}"
    if is_factor(ratio, steps, limits):
        reason = f"{what}, as many times as there are micro-batches, and points the same way."
        return Fault(
            "not-divided", "The loss is not divided by the number of micro-batches", ("GA102", "GA401"), reason
        )
    if is_factor(ratio, 1 / steps, limits):
        reason = f"{what}: 1/{steps}. One division by the {steps} micro-batches is too many."
        return Fault(
            "divided-twice", "The loss is divided by the number of micro-batches twice", ("GA103", "GA104"), reason
        )
    return Fault(
        "scale", f"The gradient is {number(ratio)} times what it should be", (), f"{what}; the direction is right."
    )


def number(value: float | None) -> str:
    """Few digits, and those that tell: 9.0000, 0.25, 3.1e-16."""
    if value is None:
        return "not a number"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.4f}" if abs(value) < 100 else f"{value:.1f}"
    return f"{value:.1e}"


def counts(values: list[float]) -> str:
    shown = [f"{each:g}" for each in values]
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]


def weights(data: Measured) -> list[float] | None:
    """The weight of one target in each micro-batch that counts any."""
    shares, numbers = data["shares"], data["counts"]
    if shares is None or numbers is None:
        return None
    return [share / count for share, count in zip(shares, numbers, strict=True) if count]


def weight_ratio(data: Measured) -> float | None:
    found = weights(data)
    if not found or min(found) <= 0:
        return None
    return max(found) / min(found)
