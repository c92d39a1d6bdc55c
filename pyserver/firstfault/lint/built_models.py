"""What ``signatures/models.toml`` says of a model's name: whether the model was built with BatchNorm."""

from functools import cache

from firstfault.library import table

_MODELS = ("timm", "torchvision", "smp-encoders")
_BORDERS = "_-0123456789"
_WORD = 4


def built_with_batch_norm(name: str) -> bool | None:
    """Of the entries that a name is or begins with the longest decides; None where there is none."""
    fitting = [each for part in _MODELS for each in _entries(part) if _stands_for(each[0], name)]
    return max(fitting, key=lambda each: len(each[0]))[1] if fitting else None


def decoder_with_batch_norm(architecture: str) -> bool:
    """Whether an architecture of segmentation_models_pytorch puts BatchNorm behind any encoder."""
    return any(has for entry, has in _entries("smp-decoders") if _stands_for(entry, architecture))


def _stands_for(entry: str, name: str) -> bool:
    """A beginning of a letter or two stands for what goes on, never for itself: ``s`` for ``s3d``."""
    if name == entry:
        return len(entry) >= _WORD
    return name.startswith(entry) and name[len(entry)] in _BORDERS


@cache
def _entries(part: str) -> tuple[tuple[str, bool], ...]:
    found = table("models").get(part, {})
    return tuple((entry, key == "with") for key in ("with", "without") for entry in found.get(key, ()))
