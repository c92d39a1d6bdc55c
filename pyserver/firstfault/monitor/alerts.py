"""When to warn: at the thresholds, once for each kind, in a sentence with its numbers and the code of the rule.

The verdicts are those of ``firstfault measure`` (``prove/judges``), over the last measured windows. Beyond what they
prove, a ratio or a mass that is off is told as what it is.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator

from firstfault.monitor.values import empty, imbalance, layers_of, scale_is_known, targets_by_rank
from firstfault.prove.judges.batchnorm import SCATTERED, batchnorm
from firstfault.prove.judges.coupled import repeats
from firstfault.prove.judges.epochs import short_window
from firstfault.prove.judges.token_weights import means_of_means, scales
from firstfault.prove.measured import Measured, Window
from firstfault.prove.verdict import Verdict
from firstfault.prove.weights import RATIO, is_close, terms, usual_length

IMBALANCE = 1.5  # most targets of a rank over the mean: the others wait for a third of the step
_BALANCED = 4  # windows before ranks are compared: few sentences of unequal length say nothing
_KEPT = 8


class Alerts:
    def __init__(self, warn: Callable[[str, str], None], unknown: Callable[[str], None]) -> None:
        self.warn = warn  # code, sentence
        self.unknown = unknown  # why something is not measured
        self.said: set[str] = set()
        self.recent: deque[Window] = deque(maxlen=_KEPT)
        self.targets: Counter[int] = Counter()  # by rank, over all measured windows
        self.compared = 0

    def look(self, window: Window, whole: bool) -> None:
        """``whole``: all ranks are in the window; else what the ranks add up to is not known."""
        self.recent.append(window)
        measured = Measured("", (), tuple(self.recent), ())
        for kind, code, sentence in self._found(measured, window, whole):
            if kind not in self.said:
                self.said.add(kind)
                self.warn(code, sentence) if code else self.unknown(sentence)

    def _found(self, measured: Measured, window: Window, whole: bool) -> Iterator[tuple[str, str, str]]:
        yield from _ratio(measured)
        if whole and scale_is_known(window):
            yield from _mass(measured)
        yield from _no_target(window)
        yield from self._imbalance(window)
        yield from _layers(measured)

    def _imbalance(self, window: Window) -> Iterator[tuple[str, str, str]]:
        if len(window.parts) < 2:
            return
        self.targets.update(targets_by_rank(window))
        self.compared += 1
        found = imbalance(self.targets)
        if self.compared >= _BALANCED and found > IMBALANCE:
            rank, most = self.targets.most_common(1)[0]
            mean = sum(self.targets.values()) / len(self.targets)
            sentence = (
                f"Rank {rank} had {most:,} targets in {self.compared} measured steps, {found:.3g} times the mean of "
                f"the ranks ({mean:,.0f}): the other ranks wait for it, and a mean of its own on each rank is wrong"
            )
            yield "imbalance", "GA301", sentence


def _ratio(measured: Measured) -> Iterator[tuple[str, str, str]]:
    verdicts = list(means_of_means(measured))
    proven = _proven(verdicts)
    losses = [term for window in measured.regular for term in terms(window) if not term.one_by_one]
    worst = max(losses, key=lambda term: term.ratio, default=None)
    if proven:
        yield "ratio", proven.code, proven.message
    elif worst is not None and worst.ratio > RATIO:
        sentence = (
            f"One target weighs up to {worst.ratio:.4g} times as much as another in optimizer step "
            f"{worst.window.number + 1}, though not as a mean of means would make it"
        )
        yield "ratio", "GA101", sentence
    elif not any(terms(window) for window in measured.windows) and len(measured.complete) > 1 and verdicts:
        yield "no loss", "", f"the weight of targets: {verdicts[0].message}"


def _mass(measured: Measured) -> Iterator[tuple[str, str, str]]:
    verdicts = list(scales(measured))
    proven = _proven(verdicts)
    short = _proven(list(short_window(measured)))
    if short:
        yield "short window", short.code, short.message
    if proven:
        yield "mass", proven.code, proven.message
    elif not any(each.state == "refuted" for each in verdicts):
        yield from _odd_mass(measured)


def _odd_mass(measured: Measured) -> Iterator[tuple[str, str, str]]:
    """A mass that none of the known faults makes, the same in two windows at least, of the only loss."""
    k = usual_length(measured.regular)
    full = [window for window in measured.regular if window.length == k and not any(empty(window))]
    found = [terms(window) for window in full if not any(repeats(part) for part in window.parts)]
    if k == 1 or len(found) < 2 or any(len(each) != 1 for each in found):
        return  # without accumulation there is nothing to divide by: it is a factor that the script wants
    term = found[-1][0]
    alike = all(is_close(each[0].mass, term.mass, 0.01) for each in found) if term.mass else False
    if alike and not is_close(term.mass, 1, term.tolerance):
        sentence = (
            f"Weight x targets adds up to {term.mass:.4g} over the {k} micro-batches of a step, not to 1; the loss has "
            "a factor of its own, counts something else than targets, or is scaled wrongly"
        )
        yield "mass", "GA102", sentence


def _no_target(window: Window) -> Iterator[tuple[str, str, str]]:
    """A sum over nothing is 0 and harms nothing."""
    for rank, number, loss in empty(window):
        if loss.reduction == "mean":
            of_rank = f" of rank {rank}" if len(window.parts) > 1 else ""
            sentence = (
                f"Micro-batch {number + 1}{of_rank} of optimizer step {window.number + 1} had no target: its mean loss "
                "is NaN, a sum divided by the targets of the step would be 0"
            )
            yield "no target", "GA109", sentence


def _layers(measured: Measured) -> Iterator[tuple[str, str, str]]:
    """Scatter is told where it was large in two windows: two micro-batches alone may differ by chance."""
    if not any(layers_of(window) for window in measured.windows):
        return
    verdicts = list(batchnorm(measured))
    tiny = _proven([each for each in verdicts if each.code == "BN502"])
    if tiny:
        yield "elements", tiny.code, tiny.message
    scattered = [window for window in measured.windows if _scatter(window) > SCATTERED]
    apart = _proven([each for each in verdicts if each.code in ("BN501", "BN504")])
    if apart and len(scattered) > 1:
        yield "scatter", apart.code, apart.message


def _scatter(window: Window) -> float:
    return max((layer["spread"] or 0.0 for layer in layers_of(window)), default=0.0)


def _proven(verdicts: list[Verdict]) -> Verdict | None:
    return next((each for each in verdicts if each.state == "proven" and not each.quiet), None)
