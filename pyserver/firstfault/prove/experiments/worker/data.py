"""A batch of any usual shape: its rows as micro-batches, in another order, in another precision, made uniform."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from firstfault.prove.experiments.worker.protocol import ProbeFault

Path = tuple[Any, ...]
Change = Callable[[Path, Any], Any]

# What a model reads, by the names that libraries and papers give it; everything else states targets, masks, lengths.
_INPUTS = ("input_ids", "inputs_embeds", "pixel_values", "input_features", "input_values", "inputs", "input", "x",
           "images", "image", "features", "tokens", "src", "data")  # fmt: skip


def rows(batch: Any, picked: Sequence[int], count: int) -> Any:
    """Some samples of a batch of ``count`` samples."""
    index = torch.as_tensor(picked)

    def pick(_: Path, leaf: Any) -> Any:
        if _is_rows(leaf, count):
            return leaf[index] if isinstance(leaf, torch.Tensor) else [leaf[each] for each in picked]
        return leaf

    return mapped(batch, pick)


def check_rows(batch: Any, count: int) -> None:
    """Refuse what cannot be cut into samples: a tensor whose first dimension is something else."""
    shapes = [tuple(leaf.shape) for _, leaf in _leaves(batch) if isinstance(leaf, torch.Tensor) and leaf.dim()]
    odd = next((shape for shape in shapes if shape[0] not in (1, count)), None)
    how = "Let batch(n) return a list of n samples and add collate(samples)."
    if odd is not None:
        raise ProbeFault(f"batch({count}) gives a tensor of shape {odd}: its first dimension is not the samples. {how}")
    if not any(shape[0] == count for shape in shapes):
        raise ProbeFault(f"batch({count}) gives no tensor with {count} rows. {how}")


def copied(batch: Any, dtype: torch.dtype) -> Any:
    """The same batch in new memory, so that no leg sees what another wrote into it; floats in the given precision."""

    def renew(_: Path, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return copy.copy(leaf) if isinstance(leaf, list) else leaf
        leaf = leaf.detach()
        return leaf.to(dtype, copy=True) if leaf.is_floating_point() else leaf.clone()

    return mapped(batch, renew)


def with_equal_targets(batch: Any, count: int, block: int, source: int) -> Any | None:
    """Inputs as they are; labels, masks and lengths of one block of samples again and again.

    So every micro-batch has the same denominator, whatever the loss divides by, and still its own gradient.
    """
    paths = [path for path, leaf in _leaves(batch) if isinstance(leaf, torch.Tensor) and _is_rows(leaf, count)]
    if len(paths) < 2:
        return None
    varied = min(paths, key=lambda path: _INPUTS.index(path[-1]) if path[-1] in _INPUTS else len(_INPUTS))
    again = torch.arange(count) % block + source * block

    def repeat(path: Path, leaf: Any) -> Any:
        if path == varied or not _is_rows(leaf, count):
            return leaf
        return leaf[again] if isinstance(leaf, torch.Tensor) else [leaf[each] for each in again.tolist()]

    return mapped(batch, repeat)


def counts_can_vary(batch: Any) -> bool:
    """Whether a tensor of the batch can say which of its elements count: tokens, labels of tokens, a mask.

    One label a sample cannot, and neither can plain measurements: their micro-batches of one size count the same.
    """
    tensors = [leaf for _, leaf in _leaves(batch) if isinstance(leaf, torch.Tensor) and leaf.dim() > 1]
    return any(not leaf.is_floating_point() or bool(((leaf == 0) | (leaf == 1)).all()) for leaf in tensors)


def checksum(batch: Any) -> float:
    """A number that differs where two batches do."""
    total = 0.0
    for place, (_, leaf) in enumerate(_leaves(batch)):
        if isinstance(leaf, torch.Tensor) and leaf.numel():
            flat = leaf.detach().double().flatten()
            total += float(torch.dot(flat, torch.arange(1, len(flat) + 1).double().sin())) * (place + 1)
    return total


def mapped(value: Any, change: Change, path: Path = ()) -> Any:
    """The same structure with every leaf changed."""
    if isinstance(value, Mapping):
        new = copy.copy(value) if hasattr(value, "__setitem__") else dict(value)
        for key in value:
            new[key] = mapped(value[key], change, (*path, key))
        return new
    if isinstance(value, tuple) or (isinstance(value, list) and any(True for _ in _tensors(value))):
        parts = [mapped(each, change, (*path, place)) for place, each in enumerate(value)]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in dataclasses.fields(value) if each.init]
        return dataclasses.replace(
            value, **{name: mapped(getattr(value, name), change, (*path, name)) for name in names}
        )
    return change(path, value)


def _leaves(batch: Any) -> list[tuple[Path, Any]]:
    found: list[tuple[Path, Any]] = []
    mapped(batch, lambda path, leaf: found.append((path, leaf)) or leaf)  # type: ignore[func-returns-value]
    return found


def _tensors(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)


def _is_rows(leaf: Any, count: int) -> bool:
    if isinstance(leaf, torch.Tensor):
        return bool(leaf.dim() > 0 and leaf.shape[0] == count)
    return isinstance(leaf, list) and len(leaf) == count
