"""One rank of several: its share of the samples through the user's recipe, compared with the whole objective."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from firstfault.prove.experiments.worker import compare
from firstfault.prove.experiments.worker.data import checksum
from firstfault.prove.experiments.worker.measure import Plan, laboratory, largest
from firstfault.prove.experiments.worker.objective import Objective, recognised, reference
from firstfault.prove.experiments.worker.protocol import ProbeFault, load
from firstfault.prove.experiments.worker.samples import Samples, controls, variable
from firstfault.prove.experiments.worker.trial import Trial, run

_PATIENCE = timedelta(seconds=60)  # for a rank that never comes
Wrap = Callable[[Any], Any]


@contextmanager
def group(rank: int, ranks: int, meeting: str) -> Iterator[Wrap]:
    """A process group on this machine; the ranks meet in a file of the private folder."""
    store = dist.FileStore(meeting, ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=_PATIENCE)
    try:
        yield lambda model: torch.nn.parallel.DistributedDataParallel(model)
    finally:
        dist.destroy_process_group()


def measure_rank(plan: Plan, rank: int, wrap: Wrap) -> dict[str, Any]:
    """The numbers of all ranks; each of them knows all."""
    with laboratory(plan.path):
        dtype = torch.float32 if plan.single else torch.float64
        torch.set_default_dtype(dtype)
        trial = Trial(plan.path, dtype, wrap)
        probe = load(plan.path)
        given = variable(probe, plan.samples, plan.ranks * plan.micro_batches)
        _check_equal_data(given)
        objective = probe.objective or recognised(trial, given.whole)[0]
        if objective is None:
            raise ProbeFault("Ranks are compared with the objective: add objective(model, batch) to the probe.")
        uneven = _compared(trial, objective, given, plan, rank, None)
        even = _control(trial, objective, plan, given, rank)
        scale = even["ratio"] if even else None
        again = _compared(trial, objective, given, plan, rank, scale) if scale else uneven
        dist.barrier()
        return {"variable": again, "uniform": even}


def _check_equal_data(given: Samples) -> None:
    mine = torch.tensor([checksum(given.whole)], dtype=torch.float64)
    all_of_them = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_them, mine)
    if any(float(each) != float(mine) for each in all_of_them):
        raise ProbeFault("batch(n) gives other samples in every process: seed what it draws from.")


def _control(trial: Trial, objective: Objective, plan: Plan, given: Samples, rank: int) -> dict[str, Any] | None:
    source = largest(reference(trial, objective, given.whole, given.parts).counts)
    for samples in controls(load(plan.path), given, plan.samples, plan.ranks * plan.micro_batches, source):
        counts = reference(trial, objective, samples.whole, samples.parts).counts
        if max(counts) - min(counts) <= 1e-9 * max(counts):
            return _compared(trial, objective, samples, plan, rank, None)
    return None


def _compared(
    trial: Trial, objective: Objective, samples: Samples, plan: Plan, rank: int, scale: float | None
) -> dict[str, Any]:
    first = rank * plan.micro_batches
    found = run(trial, samples.parts[first : first + plan.micro_batches]).gradient
    everywhere = [torch.zeros_like(found) for _ in range(plan.ranks)]
    dist.all_gather(everywhere, found)
    wanted = reference(trial, objective, samples.whole, samples.parts)
    shares, rest = compare.shares(everywhere[0], wanted.parts)
    pair = compare.pair(everywhere[0], wanted.gradient, trial.names)
    return {
        "kind": samples.kind,
        "counts": wanted.counts,
        "shares": shares,
        "unexplained": rest,
        "finite": bool(torch.isfinite(torch.stack(everywhere)).all()),
        **pair,
        "rescaled": compare.error(everywhere[0] / (scale or pair["ratio"] or 1.0), wanted.gradient),
        "apart": max((compare.error(each, everywhere[0]) or 0.0) for each in everywhere),
    }
