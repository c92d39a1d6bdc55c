"""All legs of one experiment: the samples at once (A), in micro-batches (B), and the objective itself (C).

Only numbers leave this module; what they mean is decided outside, by ``experiments.verdict``.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from firstfault.prove.experiments.worker import compare
from firstfault.prove.experiments.worker.control import Left, batchnorms, undisturbed
from firstfault.prove.experiments.worker.data import counts_can_vary
from firstfault.prove.experiments.worker.objective import Objective, Reference, recognised, reference
from firstfault.prove.experiments.worker.protocol import ProbeFault, load
from firstfault.prove.experiments.worker.samples import Samples, controls, halves, variable
from firstfault.prove.experiments.worker.trial import Leg, Trial, run

Wrap = Callable[[Any], Any]


class Plan(NamedTuple):
    path: str
    micro_batches: int
    samples: int
    ranks: int = 1
    single: bool = False  # measure in single precision, as an earlier part of the experiment had to


class Legs(NamedTuple):
    """One set of samples through every leg."""

    samples: Samples
    at_once: Leg
    in_parts: Leg
    wanted: Reference | None
    alone: list[Leg]  # each micro-batch as a window of its own; only where there is no objective

    @property
    def reference(self) -> torch.Tensor:
        return self.wanted.gradient if self.wanted else self.at_once.gradient

    @property
    def parts(self) -> list[torch.Tensor]:
        return self.wanted.parts if self.wanted else [each.gradient for each in self.alone]

    @property
    def counts(self) -> list[float] | None:
        if self.wanted:
            return self.wanted.counts
        counted = [each.watch.denominators for each in self.alone]
        return [sum(each) for each in counted] if all(counted) else None


def measure(plan: Plan, wrap: Wrap | None = None) -> dict[str, Any]:
    """Every number of the experiment."""
    with laboratory(plan.path) as left_out:
        trial, at_once, why = _trial(plan, wrap)
        probe = load(plan.path)
        given = variable(probe, plan.samples, plan.micro_batches)
        objective, named = (probe.objective, "objective()") if probe.objective else recognised(trial, given.whole)
        uneven = _legs(trial, objective, given, at_once)
        even = _control(trial, objective, plan, uneven)
        scale = _scale(even)
        return {
            "torch": str(torch.__version__),
            "python": platform.python_version(),
            "samples": plan.samples,
            "micro_batches": plan.micro_batches,
            "ranks": plan.ranks,
            "precision": str(trial.dtype).replace("torch.", ""),
            "precision_reason": why,
            "leaked": at_once.watch.leaked or bool(uneven.wanted and uneven.wanted.leaked),
            "coarse": at_once.watch.coarse,
            "objective": named or None,
            "recipe": "accumulate()" if probe.accumulate else "plain",
            "left_out": sorted(each.value for each in left_out),
            "parameters": sum(size for _, size in trial.names),
            "counts_can_vary": given.listed is not None or counts_can_vary(given.whole),
            "noise": _noise(trial, given, at_once),
            "variable": _compared(trial, uneven, scale),
            "uniform": _compared(trial, even, scale) if even else None,
            "growth": _growth(trial, even, plan) if even else None,
            "batchnorm": _batchnorm(trial, given, even, scale),
            "dropout": _dropout(trial, even or uneven, scale),
            "ledger": _ledger(uneven),
        }


@contextmanager
def laboratory(path: str) -> Iterator[set[Left]]:
    """The surroundings of all legs; put back afterwards, since tests measure in their own process."""
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    searched, arguments = list(sys.path), list(sys.argv)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    sys.argv = [path]
    torch.set_num_threads(1)
    try:
        with undisturbed() as left:
            yield left
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        sys.path[:], sys.argv = searched, arguments


def _trial(plan: Plan, wrap: Wrap | None) -> tuple[Trial, Leg, str]:
    """Double precision where the model runs in it, else single, and why."""
    try:
        return (*_tried(plan, torch.float64, wrap), "")
    except ProbeFault as fault:
        if not fault.trace:
            raise
        first = fault
    trial, leg = _tried(plan, torch.float32, wrap)
    return trial, leg, f"In float64: {first.trace.splitlines()[-1]}"


def _tried(plan: Plan, dtype: torch.dtype, wrap: Wrap | None) -> tuple[Trial, Leg]:
    torch.set_default_dtype(dtype)
    trial = Trial(plan.path, dtype, wrap)
    given = variable(load(plan.path), plan.samples, plan.micro_batches)
    return trial, run(trial, [given.whole])


def _legs(trial: Trial, objective: Objective | None, samples: Samples, at_once: Leg | None = None) -> Legs:
    wanted = reference(trial, objective, samples.whole, samples.parts) if objective else None
    alone = [] if wanted else [run(trial, [each]) for each in samples.parts]
    return Legs(
        samples,
        at_once or run(trial, [samples.whole]),
        run(trial, samples.parts, twice=True),
        wanted,
        alone,
    )


def _control(trial: Trial, objective: Objective | None, plan: Plan, uneven: Legs) -> Legs | None:
    """The first control whose micro-batches really count the same."""
    if plan.micro_batches == 1:
        return None
    for samples in controls(load(plan.path), uneven.samples, plan.samples, plan.micro_batches, largest(uneven.counts)):
        try:
            legs = _legs(trial, objective, samples)
        except ProbeFault:
            if samples.kind == "equal-targets":  # inputs and targets that cannot be mixed
                continue
            raise
        counts = legs.counts
        if counts is None or max(counts) - min(counts) <= 1e-9 * max(counts):
            return legs
        if samples.kind == "uniform()":
            raise ProbeFault(f"uniform() gives micro-batches that count {_listed(counts)} targets; they must be equal.")
    return None


def largest(counts: list[float] | None) -> int:
    return max(range(len(counts)), key=counts.__getitem__) if counts else 0


def _listed(counts: list[float]) -> str:
    return ", ".join(f"{each:g}" for each in counts)


def _noise(trial: Trial, given: Samples, at_once: Leg) -> dict[str, float | None]:
    """How far leg A is from itself: run again, with its samples in another order, with other random numbers."""
    again = run(trial, [given.whole]).gradient
    turned = run(trial, [given.reordered]).gradient
    reseeded = run(trial, [given.whole], start=1).gradient
    return {
        "repeated": compare.error(again, at_once.gradient),
        "reordered": compare.error(turned, at_once.gradient),
        "reseeded": compare.error(reseeded, at_once.gradient),
    }


Scale = dict[str, "float | None"]  # how many times its reference B is on the control, where only a factor can differ


def _scale(even: Legs | None) -> Scale:
    if even is None:
        return {"A": None, "C": None}
    found = even.in_parts.gradient
    return {
        "A": compare.pair(found, even.at_once.gradient, [])["ratio"],
        "C": compare.pair(found, even.wanted.gradient, [])["ratio"] if even.wanted else None,
    }


def _compared(trial: Trial, legs: Legs, scale: Scale) -> dict[str, Any]:
    found, names = legs.in_parts.gradient, trial.names
    shares, rest = compare.shares(found, legs.parts)
    answer: dict[str, Any] = {
        "kind": legs.samples.kind,
        "counts": legs.counts,
        "shares": shares,
        "unexplained": rest,
        "finite": [bool(torch.isfinite(each).all()) for each in (legs.at_once.gradient, found, legs.reference)],
        "B/A": compare.pair(found, legs.at_once.gradient, names),
        "A/C": None,
        "B/C": None,
        "additive": None,
        "rescaled": {"A": compare.error(found / (scale["A"] or 1.0), legs.at_once.gradient), "C": None},
    }
    if legs.wanted:
        answer["A/C"] = compare.pair(legs.at_once.gradient, legs.wanted.gradient, names)
        answer["B/C"] = compare.pair(found, legs.wanted.gradient, names)
        answer["rescaled"]["C"] = compare.error(found / (scale["C"] or 1.0), legs.wanted.gradient)
        answer["additive"] = compare.error(legs.wanted.summed, legs.wanted.gradient)
    return answer


def _growth(trial: Trial, even: Legs, plan: Plan) -> dict[str, Any] | None:
    """What more micro-batches add: of a term that each of them counts anew, as much each time and in one direction."""
    parts = halves(even.samples, plan.samples)
    if parts is None or plan.micro_batches < 3:
        return None
    added = even.in_parts.gradient - even.at_once.gradient
    return compare.pair(added, run(trial, parts).gradient - even.at_once.gradient, [])


def _batchnorm(trial: Trial, given: Samples, even: Legs | None, scale: Scale) -> dict[str, Any] | None:
    """The question of its own: training mode, where each micro-batch is normalised by its own statistics."""
    layers = batchnorms(trial.model(load(trial.path), 1, live=True))
    if not layers:
        return None
    samples = even.samples if even and even.samples.kind != "repeated" else given
    at_once, in_parts = run(trial, [samples.whole], live=True), run(trial, samples.parts, live=True)
    found = in_parts.gradient / (scale["A"] or 1.0)
    momenta = {each.momentum for each in layers.values()}
    return {
        "layers": list(layers),
        "samples": samples.kind,
        "pair": compare.pair(found, at_once.gradient, trial.names),
        "momentum": momenta.pop() if len(momenta) == 1 else None,
        "updates": _updates(trial, in_parts),
        "running_mean": _moved(trial, in_parts, at_once, "running_mean"),
        "running_var": _moved(trial, in_parts, at_once, "running_var"),
    }


def _updates(trial: Trial, leg: Leg) -> int | None:
    made = [
        int(each) - int(trial.state[name])
        for name, each in leg.buffers.items()
        if name.endswith("num_batches_tracked") and name in trial.state
    ]
    return max(made) if made else None


def _moved(trial: Trial, found: Leg, wanted: Leg, buffer: str) -> float | None:
    """The error of what one window did to the running statistics, relative to what it should have done."""
    names = [name for name in wanted.buffers if name.rsplit(".", 1)[-1] == buffer and name in trial.state]
    if not names:
        return None
    start, right, made = (
        torch.cat([each[name].double().flatten() for name in names])
        for each in (trial.state, wanted.buffers, found.buffers)
    )
    return compare.error(made - start, right - start)


def _dropout(trial: Trial, legs: Legs, scale: Scale) -> dict[str, Any] | None:
    """How far A and B are apart while dropout is on: what a comparison by hand would have seen."""
    if not legs.at_once.watch.silenced:
        return None
    at_once = run(trial, [legs.samples.whole], dropout=True)
    in_parts = run(trial, legs.samples.parts, dropout=True)
    return {"error": compare.error(in_parts.gradient / (scale["A"] or 1.0), at_once.gradient)}


def _ledger(legs: Legs) -> dict[str, Any]:
    return {
        "steps": legs.in_parts.steps,
        "steps_at_once": legs.at_once.steps,
        "rates": legs.in_parts.rates,
        "rates_at_once": legs.at_once.rates,
        "next_window": legs.in_parts.again,
    }
