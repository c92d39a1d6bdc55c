"""From a plan to one message: what was measured, or why nothing was."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from typing import Any

from firstfault.prove.experiments.worker import protocol
from firstfault.prove.experiments.worker.measure import Plan, measure
from firstfault.prove.experiments.worker.protocol import ProbeFault, user_trace
from firstfault.prove.experiments.worker.ranks import group, measure_rank

Send = Callable[[dict[str, Any]], None]


def answer(plan: dict[str, Any], rank: int | None, folder: str, send: Send) -> None:
    threading.Thread(target=_end_with, args=(os.getppid(), folder), daemon=True).start()
    _tell_where(send)
    wanted = Plan(**{name: plan[name] for name in Plan._fields})
    try:
        send(_measured(wanted, rank, folder))
    except ProbeFault as fault:
        send({"kind": "refused", "sentence": fault.sentence, "trace": fault.trace})
    except MemoryError:
        send({"kind": "refused", "sentence": "Memory is exhausted: let build() give a smaller model."})
    except Exception as error:  # of the experiment, not of the user's code: still a sentence
        what = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        send({"kind": "refused", "sentence": f"The experiment itself failed ({what}).", "trace": user_trace(error)})


def _measured(plan: Plan, rank: int | None, folder: str) -> dict[str, Any]:
    if rank is not None:
        with group(rank, plan.ranks, os.path.join(folder, "meeting")) as wrap:
            return {"kind": "ranked", "rank": rank, **measure_rank(plan, rank, wrap)}
    if plan.ranks == 1:
        return {"kind": "measured", **measure(plan)}
    with group(0, 1, os.path.join(folder, "alone")) as wrap:  # the user's code may ask for the group
        return {"kind": "measured", **measure(plan, wrap)}


def _end_with(parent: int, folder: str) -> None:
    """Nobody waits for the answer any more once the process that asked is gone."""
    while os.getppid() == parent:
        time.sleep(0.5)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _tell_where(send: Send) -> None:
    last = ""

    def entered(where: str) -> None:
        nonlocal last
        if where != last:
            last = where
            send({"kind": "in", "where": where})

    protocol.entered.append(entered)
