"""How much one target weighs in the gradient: read where the gradient arrives at a loss function.

``F.cross_entropy`` and its relatives are watched (the modules of ``torch.nn`` call them). The gradient that arrives at
the output tells the weight: over the counted targets for a mean, as it is for a sum, one by one for ``none``. The right
recipe gives every target of a window the same weight, and weights times counts add up to 1.

Each loss of a micro-batch becomes

    {"kind": "cross_entropy", "reduction": "mean", "file": "train.py", "line": 12, "targets": 90, "counted": 90.0,
     "weight": 0.0055, "low": 0.0055, "high": 0.0055, "unit": "target", "class_weights": False, "dtype": "float32",
     "scale": 1.0}

``targets`` is how many entered, ``counted`` what the loss's own mean divides by (with class weights the sum of them),
``weight`` what a unit of ``counted`` weighs, the gradient scaler's factor divided out; ``low`` and ``high`` differ from
it where a script weighs targets one by one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from firstfault.prove.probes.patching import Undo, all_of, wrap
from firstfault.prove.probes.places import calling_line
from firstfault.prove.record import Record


class Counted(NamedTuple):
    """The targets of one call: which enter (a mask in the shape of the loss), and what the mean divides by."""

    entering: torch.Tensor | None  # None: all
    targets: Any
    counted: Any
    unit: str = "target"
    class_weights: torch.Tensor | None = None  # of each target, in the shape of the loss


Count = Callable[[Any], Counted]


def install(record: Record) -> Undo:
    return all_of(wrap(functional, name, partial(_watched, record, name)) for name in _COUNTS)


def _watched(record: Record, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)
    follow = record.guard("token_weights", _follow)

    def loss(*arguments: Any, **named: Any) -> Any:
        output = original(*arguments, **named)
        if record.muted or not isinstance(output, torch.Tensor) or not output.requires_grad:
            return output
        record.activity()
        follow(record, name, signature, arguments, named, output)
        return output

    return loss


def _follow(record: Record, name: str, signature: inspect.Signature, arguments: Any, named: Any, output: Any) -> None:
    """Wait for the gradient at this output; a loss that is only logged never gets one."""
    bound = signature.bind(*arguments, **named)
    bound.apply_defaults()
    with torch.no_grad():
        counted = _COUNTS[name](_Arguments(bound.arguments))
    reduction = _reduction(bound.arguments)
    file, line = calling_line()

    def arrived(gradient: torch.Tensor) -> None:
        if record.muted or not record.depth:
            return  # torch.autograd.grad: nothing is added to the gradients
        with torch.no_grad():
            found = _weights(gradient.detach(), counted, reduction, record.scale)
        dtype = str(output.dtype).replace("torch.", "")
        found.update(kind=name, reduction=reduction, file=file, line=line, unit=counted.unit, dtype=dtype)
        found.update(class_weights=counted.class_weights is not None, scale=record.scale)
        record.window.micro_batches[-1]["losses"].append(found)

    output.register_hook(record.guard("token_weights", arrived))


def _weights(gradient: torch.Tensor, counted: Counted, reduction: str, scale: Any) -> dict[str, Any]:
    gradient = gradient.double() if gradient.device.type != "mps" else gradient.float()
    gradient = gradient / scale
    if reduction != "none":
        weight = gradient.sum() / (counted.counted if reduction == "mean" else 1)
        return {"targets": counted.targets, "counted": counted.counted, "weight": weight, "low": weight, "high": weight}
    entering = gradient != 0  # a mask that the script multiplies in leaves zeros
    if counted.entering is not None:
        entering = entering & counted.entering
    each = gradient[entering]
    targets = entering.sum()
    units = targets if counted.class_weights is None else counted.class_weights[entering].sum()
    if not each.numel():
        return {"targets": targets, "counted": units, "weight": 0.0, "low": 0.0, "high": 0.0}
    total = each.sum() if counted.class_weights is None else (each * counted.class_weights[entering]).sum()
    return {"targets": targets, "counted": units, "weight": total / units, "low": each.min(), "high": each.max()}


# ---------------------------------------------------------------------------------- what each loss function counts


class _Arguments:
    """The arguments of a call by name, None where this torch has no such parameter."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        return self._values.get(name)


def _cross_entropy(call: _Arguments) -> Counted:
    if call.target.is_floating_point():  # probabilities: every position enters
        classes = call.input.shape[1 if call.input.dim() > 1 else 0]
        positions = call.target.numel() // max(classes, 1)
        return Counted(None, positions, float(positions))
    return _classes(call)


def _classes(call: _Arguments) -> Counted:
    ignore = -100 if call.ignore_index is None else call.ignore_index
    entering = call.target != ignore
    targets = entering.sum()
    if call.weight is None:
        return Counted(entering, targets, targets.double() if targets.device.type != "mps" else targets.float())
    weights = call.weight[call.target.clamp(min=0)] * entering
    return Counted(entering, targets, weights.sum(), class_weights=weights)


def _elements(call: _Arguments) -> Counted:
    target = call.target
    shape = torch.broadcast_shapes(call.input.shape, target.shape) if isinstance(target, torch.Tensor) else ()
    number = 1
    for size in shape:
        number *= size
    return Counted(None, number, float(number))


def _binary(call: _Arguments) -> Counted:
    """A weight of zeros and ones is a mask, and with a sum it is what the script divides by."""
    if call.weight is None or _reduction(call._values) == "mean":
        return _elements(call)
    weight = call.weight.expand_as(call.input)
    if bool(((weight != 0) & (weight != 1)).any()):
        return _elements(call)
    return Counted(weight != 0, weight.sum(), weight.sum())


def _divergence(call: _Arguments) -> Counted:
    if call.reduction != "batchmean":
        return _elements(call)
    samples = call.input.shape[0] if call.input.dim() else 1
    return Counted(None, samples, float(samples), unit="sample")


def _alignments(call: _Arguments) -> Counted:
    """CTC's mean is one over samples, each divided by its own length; a sum is counted in labels."""
    lengths = torch.as_tensor(call.target_lengths)
    if _reduction(call._values) == "sum":
        return Counted(None, lengths.sum(), lengths.sum().float())
    return Counted(None, lengths.numel(), float(lengths.numel()), unit="sample")


_COUNTS: dict[str, Count] = {
    "cross_entropy": _cross_entropy,
    "nll_loss": _classes,
    "binary_cross_entropy": _binary,
    "binary_cross_entropy_with_logits": _binary,
    "ctc_loss": _alignments,
    "kl_div": _divergence,
    "mse_loss": _elements,
    "l1_loss": _elements,
    "smooth_l1_loss": _elements,
    "huber_loss": _elements,
    "poisson_nll_loss": _elements,
}


def _reduction(values: dict[str, Any]) -> str:
    """mean, sum or none; the two old parameters still decide where they are given."""
    average, reduce = values.get("size_average"), values.get("reduce")
    if reduce is False:
        return "none"
    if average is not None or reduce is not None:
        return "sum" if average is False else "mean"
    return "mean" if values.get("reduction") == "batchmean" else str(values.get("reduction", "mean"))
