"""What the curves of a log say about its failures: which NaN counts, and what raised no error at all.

A NaN that the loss left again was skipped or not computed yet. One that stayed came first, unless an exception that has
nothing to do with numbers ended the run: then that is what the user must know, and the NaN stands beside it.
"""

from collections.abc import Iterator

from firstfault.diagnose.curves import Curves
from firstfault.diagnose.evidence import Choice
from firstfault.diagnose.failures import Failure
from firstfault.diagnose.ranks import Ranks
from firstfault.diagnose.silent import Symptom, lost, nan_loss, nan_values, symptoms
from firstfault.library import Library
from firstfault.logs.log import Log
from firstfault.patterns import gated

NANS = frozenset(("loss-nan", "eval-loss-nan"))
# Exceptions that a NaN brings about: by their class, or by the words of their message.
BROUGHT = frozenset(
    ("multinomial-probs", "assert-bce", "assert-index", "assert-label", "assert-embedding", "device-assert",
     "pl-monitor", "best-model", "interrupted", "lightning-interrupt")
)  # fmt: skip
OF_NUMBERS = gated(
    r"\bnan\b|\binf(?:inite|inity)?\b|finite|not a number|converge|singular|overflow|diverge|\bloss\b|ill-conditioned"
    r"|eigen|svd|cholesky|positive.definite",
    flags=2,
)
REASON = "No line of the text reports an error; the printed numbers show it."


def weigh(failures: list[Failure], log: Log, library: Library, ranks: Ranks) -> list[Failure]:
    """The failures with the NaN of the curves among them, those left out that the loss got over."""
    curves = Curves(log)
    kept = [each for each in failures if not _got_over(each, curves)]
    if not any(each.signature.category == "numerics-silent" for each in kept):
        kept = sorted([*kept, *_unread(curves, library, ranks)], key=lambda each: each.order)
    kept = [_with_numbers(each, curves, library) for each in kept]
    return _from_one_rank([_beside(each, kept) for each in kept], curves)


def symptom(log: Log, library: Library, ranks: Ranks) -> Choice | None:
    """The surest failure that raised no error, if the curves show one."""
    found = next(symptoms(Curves(log)), None)
    if found is None:
        return None
    failure = _failure(found, library, ranks)
    return Choice(failure, failure.owner, False, REASON, established=False)


def _unread(curves: Curves, library: Library, ranks: Ranks) -> Iterator[Failure]:
    for curve in curves.all:
        found = nan_loss(curve, curves.log)
        if found is not None:
            yield _failure(found, library, ranks)


def _failure(found: Symptom, library: Library, ranks: Ranks) -> Failure:
    signature = library.signatures[found.signature]
    owner = ranks.of_line(found.lines[0])
    return Failure(signature, "initiating", found.values, owner, found.lines, None, None, None, True)


def _got_over(failure: Failure, curves: Curves) -> bool:
    """A printed NaN after which the same loss of the same writer was a number again, to the end."""
    if failure.signature.id not in NANS or failure.block is not None:
        return False
    curve = curves.of(failure.lines[0])
    if curve is None:
        return False
    order = failure.lines[0].order
    if any(point.line.order == order and not point.finite for point in curve.loss):
        first = lost(curve)
        return first is None or order < first.line.order
    if failure.signature.id == "loss-nan" and any(each.line.order == order and each.finite for each in curve.loss):
        # Another number on the line; the training's own loss never broke.
        return lost(curve) is None and _named_loss_alone(failure)
    evaluated = [point for point in curve.evaluated if point.line.order >= order]
    return bool(evaluated) and not evaluated[0].finite and evaluated[-1].finite


def _named_loss_alone(failure: Failure) -> bool:
    """The bar of Lightning shows ``loss=nan`` where the loop optimizes by hand, beside the loss that was logged."""
    return "v_num=" in failure.lines[0].text and "loss=nan" in failure.lines[0].text


def _with_numbers(failure: Failure, curves: Curves, library: Library) -> Failure:
    """A NaN with what was before it. Where the loss is NaN as well as the gradient norm, the loss is what to tell."""
    printed = failure.signature.id == "grad-nonfinite" and failure.block is None
    if failure.signature.id != "loss-nan" and not printed:
        return failure
    curve = curves.of(failure.lines[0])
    if curve is None or (printed and lost(curve) is None):
        return failure
    values, lines = nan_values(curve, failure.lines[0])
    shown = tuple(dict.fromkeys((lines[0], *failure.lines, *lines)))
    signature = library.signatures["loss-nan"]
    return failure._replace(signature=signature, captures={**values, **failure.captures}, lines=shown)


def _beside(failure: Failure, failures: list[Failure]) -> Failure:
    """A NaN that ended nothing: the exception that did is no consequence of it."""
    if failure.signature.id not in NANS or failure.block is not None:
        return failure
    ended = [each for each in failures if each.order > failure.order and _ends(each)]
    if not ended or any(_of_numbers(each) for each in ended):
        return failure
    return failure._replace(role="either")


def _from_one_rank(failures: list[Failure], curves: Curves) -> list[Failure]:
    """An all-reduce spreads a NaN: where one rank had it at an earlier step than all others, theirs follow from it."""
    when: dict[int, tuple[float, int]] = {}
    for each in failures:
        curve = curves.of(each.lines[0]) if each.signature.id == "loss-nan" else None
        first = lost(curve) if curve is not None else None
        if first is not None and first.step is not None and each.owner.rank is not None:
            when[each.owner.rank] = (first.epoch or 0, first.step)
    earliest = [rank for rank, moment in when.items() if moment == min(when.values())]
    if len(when) < 2 or len(earliest) != 1:
        return failures
    return [
        each._replace(role="collateral")
        if each.signature.id == "loss-nan" and each.owner.rank in when and each.owner.rank != earliest[0]
        else each
        for each in failures
    ]


def _ends(failure: Failure) -> bool:
    return failure.role == "initiating" and failure.block is not None and bool(failure.block.type)


def _of_numbers(failure: Failure) -> bool:
    if failure.signature.id in BROUGHT or failure.signature.category == "numerics-silent":
        return True
    assert failure.block is not None
    return bool(OF_NUMBERS.search(f"{failure.block.type}: {failure.block.message[:2000]}"))
