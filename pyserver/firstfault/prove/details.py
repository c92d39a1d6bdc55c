"""What a window's table says below its weights: the gradient beside the wanted one, and each BatchNorm layer."""

from collections.abc import Iterator
from typing import Any

from firstfault.prove.gradients import Gradient, gradient
from firstfault.prove.measured import Window

_MANY = 6  # layers that are named; the others of a deep model are alike


def lines(window: Window) -> Iterator[str]:
    layers = [layer for part in window.parts[:1] for layer in part.values.get("batchnorm", [])]
    found = gradient(window)
    if found is not None:
        yield f"gradient: {_beside(found, bool(layers))}"
    for layer in layers[:_MANY]:
        yield _layer(layer)
    if len(layers) > _MANY:
        yield f"and {len(layers) - _MANY} more BatchNorm layers"


def to_json(window: Window) -> dict[str, Any]:
    """`gradient` of the window, and the values of each rank without what was only sent to make that."""
    found = gradient(window)
    values = {
        str(part.rank): {name: each for name, each in part.values.items() if name != "gradients"}
        for part in window.parts
    }
    return {"gradient": found._asdict() if found else None, "values": values}


def _beside(found: Gradient, normed: bool) -> str:
    wanted = "that of the mean over all targets" + (", each micro-batch normalised by itself" if normed else "")
    if not found.differs:
        told = f"equal to {wanted} (difference {found.error:.1g}, rounding {found.noise:.1g})"
    elif found.only_scaled:
        told = f"cosine {found.cosine:.4g} with {wanted}; multiplied by {found.kept_scale:.3g} behind backward"
    else:
        told = f"{100 * found.error:.3g}% away from {wanted}, cosine {found.cosine:.4g}"
    return told + (f"; ranks differ by {100 * found.apart:.3g}% of it" if found.apart > found.noise else "")


def _layer(layer: dict[str, Any]) -> str:
    name = f"{layer['kind']}({layer['channels']}){' ' + layer['layer'] if layer['layer'] else ''}"
    told = [f"{layer['batches']} batches of {layer['elements']:,} or more values for each channel"]
    if layer["updates"]:
        told.append(f"{layer['updates']} updates of the running statistics")
    if layer["momentum"] is not None and layer["updates"] > 1:
        told.append(f"momentum {layer['momentum']:g} acts as {1 - (1 - layer['momentum']) ** layer['updates']:.3g}")
    if layer["drift"] is not None:
        told.append(f"means {layer['drift']:.2g} deviations from the running ones")
    return f"{name}: {', '.join(told)}"
