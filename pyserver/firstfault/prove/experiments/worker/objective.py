"""Leg C: the gradient of the stated objective by direct differentiation; it knows nothing of the user's loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from firstfault.prove.experiments.worker.control import Watch, controlled, seed
from firstfault.prove.experiments.worker.data import copied
from firstfault.prove.experiments.worker.protocol import ProbeFault, call, load
from firstfault.prove.experiments.worker.trial import Trial

Objective = Callable[[Any, Any], Any]


class Reference(NamedTuple):
    """The wanted gradient, and the mean gradient and the count of each micro-batch alone."""

    gradient: torch.Tensor
    parts: list[torch.Tensor]
    counts: list[float]
    summed: torch.Tensor  # the parts, each by its count: equal to ``gradient`` where the loss is a sum over targets
    leaked: bool


def reference(trial: Trial, objective: Objective, whole: Any, micro_batches: list[Any]) -> Reference:
    watch = Watch()
    model = trial.model(load(trial.path), 1, live=False)
    seed(0)
    with controlled(watch, trial.double, dropout_off=True):
        total, count = _differentiated(trial, model, objective, whole)
        found = [_differentiated(trial, model, objective, each) for each in micro_batches]
    counts = [each for _, each in found]
    if not count or not sum(counts):
        raise ProbeFault("objective() counts no target in the whole batch.")
    parts = [part / number if number else torch.zeros_like(part) for part, number in found]
    summed = torch.stack([part for part, _ in found]).sum(dim=0) / sum(counts)
    return Reference(total / count, parts, counts, summed, watch.leaked)


def _differentiated(
    trial: Trial, model: torch.nn.Module, objective: Objective, batch: Any
) -> tuple[torch.Tensor, float]:
    answer = call("objective()", objective, model, copied(batch, trial.dtype))
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], torch.Tensor)):
        raise ProbeFault("objective(model, batch) must give (the sum of the losses, the number of targets).")
    total, count = answer
    if total.dim() or not total.requires_grad:
        raise ProbeFault("objective(model, batch) gives a sum that is no scalar with a gradient.")
    trained = [each for each in model.parameters() if each.requires_grad]
    parts = torch.autograd.grad(total, trained, allow_unused=True)
    flat = [
        (torch.zeros_like(of) if part is None else part).detach().double().flatten() for part, of in zip(parts, trained)
    ]
    return torch.cat(flat), float(count)


def recognised(trial: Trial, whole: Any) -> tuple[Objective | None, str]:
    """The objective of a model that computes its own loss, where it is cross-entropy over its labels; else None.

    Whether labels are shifted is not guessed from a name: both forms are compared with the model's own loss.
    """
    if not isinstance(whole, Mapping) or not isinstance(whole.get("labels"), torch.Tensor):
        return None, ""
    model, watch = trial.model(load(trial.path), 1, live=False), Watch()
    batch = copied(whole, trial.dtype)
    with torch.no_grad(), controlled(watch, trial.double, dropout_off=True):
        try:
            output = model(**batch)
            own = float(output.loss)
            matching = [form for form in _FORMS if _agrees(form[1](output.logits, batch["labels"]), own)]
        except Exception:  # Any model may be here; what does not answer is not recognised.
            return None, ""
    if len(matching) != 1:
        return None, ""
    name, form = matching[0]
    return lambda model, batch: form(model(**batch).logits, batch["labels"]), name


def _agrees(summed: tuple[torch.Tensor, torch.Tensor], own: float) -> bool:
    total, count = float(summed[0]), float(summed[1])
    return count > 0 and abs(total / count - own) <= 1e-4 * max(abs(own), 1e-12)


def _per_label(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    classes = logits.shape[-1]
    total = F.cross_entropy(logits.reshape(-1, classes), labels.reshape(-1), ignore_index=-100, reduction="sum")
    return total, (labels != -100).sum()


def _per_next_label(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return _per_label(logits[:, :-1], labels[:, 1:])


_FORMS = (
    ("cross-entropy of each label, recognised in the model's own loss", _per_label),
    ("cross-entropy of each next label, recognised in the model's own loss", _per_next_label),
)
