"""What the loss is divided by, beside the targets that entered it; and micro-batches that have none."""

from collections.abc import Iterator

from firstfault.prove.measured import Loss, Measured, Part
from firstfault.prove.verdict import Verdict, judge
from firstfault.prove.weights import Term, terms

_WHOLE = 1e-5  # relative: a divisor that is a count comes out as a whole number
_MOST = 2.0  # times the targets; the first label of each row is one label of two at least


@judge
def unshifted(measured: Measured) -> Iterator[Verdict]:
    """GA108: sums over the labels that are predicted, divided by the count of all labels."""
    found = [term for window in measured.regular for term in terms(window) if _is_sum(term)]
    divisors = [_divisor(term) for term in found]
    if not found:
        yield Verdict("GA108", "not measured", "No sum of losses was divided by a count.")
    elif all(divisors) and all(term.counted < divisor for term, divisor in zip(found, divisors, strict=True)):
        term, divisor = found[0], divisors[0]
        more = divisor - round(term.counted)
        message = (
            f"The losses of {term.counted:,.0f} targets are divided by {divisor:,}: {more} that never enter are "
            f"counted too, and weight x targets adds up to {term.mass:.4g}."
        )
        yield Verdict("GA108", "proven", message, term.file, term.line, quiet=True)
    elif all(abs(term.mass - 1) <= term.tolerance for term in found):
        shown = f"{found[0].counted:,.0f} targets entered the loss and are divided by their number"
        yield Verdict("GA108", "refuted", f"{shown}: weight x targets adds up to {found[0].mass:.4g}.")
    else:
        yield Verdict("GA108", "not measured", "What the losses are divided by is no count of labels in each window.")


def _is_sum(term: Term) -> bool:
    summed = all(row.loss.reduction in ("sum", "none") for row in term.rows)
    return summed and term.ratio - 1 <= term.tolerance and not term.one_by_one


def _divisor(term: Term) -> int:
    """The whole number that the sums were divided by, or 0."""
    divisor = term.counted / term.mass if term.mass > 0 else 0.0
    whole = round(divisor)
    fits = abs(divisor - whole) <= _WHOLE * divisor and term.counted <= whole <= _MOST * term.counted
    return whole if fits and not any(row.loss.class_weights for row in term.rows) else 0


@judge
def without_targets(measured: Measured) -> Iterator[Verdict]:
    """GA109: a mean over nothing."""
    parts = [part for window in measured.windows for part in window.parts]
    losses = [loss for part in parts for loss in _losses(part)]
    empty = [loss for loss in losses if not loss.targets and loss.reduction == "mean"]
    if empty:
        one = empty[0]
        message = (
            f"{len(empty)} of {len(losses)} losses had no target at all, and the mean of none is not a number: with it "
            "every gradient of the step is lost."
        )
        yield Verdict("GA109", "proven", message, one.file, one.line)
    elif losses:
        fewest = min(loss.targets for loss in losses)
        why = f"Every one of the {len(losses)} losses of this run had targets, {fewest:,} at least; other data may not."
        yield Verdict("GA109", "not measured", why)
    else:
        yield Verdict("GA109", "not measured", "No watched loss function took part.")


def _losses(part: Part) -> list[Loss]:
    return [loss for micro_batch in part.micro_batches for loss in micro_batch.losses]
