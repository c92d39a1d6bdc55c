"""A measured window as the numbers that are logged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from firstfault.prove.measured import Window
from firstfault.prove.weights import Term, terms

MEANINGS = {
    "weight_ratio": "Largest weight of a target over the smallest in one optimizer step; 1 is right.",
    "mass": "Sum of weight x targets over one optimizer step; 1 is right.",
    "targets": "Targets of one optimizer step.",
    "empty_micro_batches": "Losses of one optimizer step that counted no target.",
    "micro_batches_per_step": "Micro-batches of one optimizer step, on each rank.",
    "rank_imbalance": "Most targets of a rank over the mean of the ranks.",
    "batchnorm_drift": "Largest distance of batch means to the running mean of a BatchNorm layer, in deviations.",
    "batchnorm_elements": "Fewest values for each channel that a BatchNorm layer took its statistics from.",
    "batchnorm_scatter": "Scatter of micro-batch means over that of independent samples, of the worst BatchNorm layer.",
    "steps": "Optimizer steps since the monitor began.",
    "skipped_steps": "Steps that a gradient scaler left out.",
    "micro_batches": "Micro-batches since the monitor began.",
    "steps_per_epoch": "Optimizer steps of the last epoch that ended.",
}


def values_of(window: Window, whole: bool) -> dict[str, float]:
    """``whole``: all ranks are in it, so that what the step added up is known."""
    found = {"micro_batches_per_step": float(window.length), **_batchnorm(window)}
    losses = terms(window)
    if losses:
        found["targets"] = float(sum(term.targets for term in losses))
        found["empty_micro_batches"] = float(len(list(empty(window))))
        found.update(_ratio(losses))
    if losses and whole and scale_is_known(window):
        found.update(_masses(losses))
    if len(window.parts) > 1 and losses:
        found["rank_imbalance"] = imbalance(targets_by_rank(window))
    return found


def _ratio(losses: list[Term]) -> dict[str, float]:
    """Unknown where a script weighs targets one by one."""
    ratios = [term.ratio for term in losses if not term.one_by_one]
    return {"weight_ratio": max(ratios)} if ratios else {}


def _masses(losses: list[Term]) -> dict[str, float]:
    """By the line of the loss where there are several."""
    by_line: dict[str, float] = {}
    for term in losses:
        line = f"{os.path.basename(term.file)}:{term.line}"
        by_line[line] = by_line.get(line, 0.0) + term.mass
    if len(by_line) == 1:
        return {"mass": next(iter(by_line.values()))}
    return {f"mass/{line}": mass for line, mass in by_line.items()}


def scale_is_known(window: Window) -> bool:
    """Whether ranks take the mean of their gradients is known of DistributedDataParallel alone."""
    return window.world == 1 or all("averaged_over_ranks" in part.values for part in window.parts)


def empty(window: Window) -> Iterator[tuple[int, int, Any]]:
    """Rank, number and loss of micro-batches without a target. One by one, zeros may have another reason."""
    for part in window.parts:
        for number, micro_batch in enumerate(part.micro_batches):
            for loss in micro_batch.losses:
                if not loss.targets and loss.reduction != "none":
                    yield part.rank, number, loss


def targets_by_rank(window: Window) -> dict[int, int]:
    return {
        part.rank: sum(loss.targets for each in part.micro_batches for loss in each.losses) for part in window.parts
    }


def imbalance(targets: dict[int, int]) -> float:
    total = sum(targets.values())
    return max(targets.values()) * len(targets) / total if total else 1.0


def layers_of(window: Window) -> list[dict[str, Any]]:
    return [layer for part in window.parts for layer in part.values.get("batchnorm", [])]


def _batchnorm(window: Window) -> dict[str, float]:
    layers = layers_of(window)
    found = {}
    if layers:
        found["batchnorm_elements"] = float(min(each["elements"] for each in layers))
    for name, key in (("batchnorm_drift", "drift"), ("batchnorm_scatter", "spread")):
        known = [float(each[key]) for each in layers if each[key] is not None]
        if known:
            found[name] = max(known)
    return found
