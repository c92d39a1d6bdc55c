"""Makes signatures/models.toml: which models of torchvision, timm and segmentation_models_pytorch bring BatchNorm.

    python scripts/models_table.py      in an environment with the three libraries beside torch

Every model that the libraries list is built in its default configuration, without weights and without memory (on
torch's meta device), and its layers are looked at. Names are shortened to the parts that decide: where all models that
begin with ``resnet`` agree, the table says so once.
"""

import contextlib
import importlib
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")
os.environ["HF_HUB_OFFLINE"] = "1"
import torch  # noqa: E402

TABLE = Path(__file__).resolve().parent.parent / "signatures" / "models.toml"
HEADER = """\
# Which models of three libraries bring BatchNorm in their default configuration, by building each of them.
#
# Made by scripts/models_table.py with {versions}; do not edit.
# An entry stands for every model whose name is it, or begins with it and goes on with an underscore, a digit or a dash;
# the longest one that fits decides. {built} models were built, {failed} could not be: {examples}.
"""


def main() -> None:
    logging.disable(logging.CRITICAL)
    torchvision, timm, smp = _libraries()
    parts = {
        "torchvision": _built(torchvision.models.list_models(), lambda name: torchvision.models.get_model(name)),
        "timm": _built(timm.list_models(), lambda name: timm.create_model(name, pretrained=False)),
        "smp-encoders": _built(
            smp.encoders.get_encoder_names(), lambda name: smp.encoders.get_encoder(name, weights=None)
        ),
    }
    parts["smp-decoders"] = _built(_architectures(smp), lambda name: _decoder(smp, name))
    versions = f"torchvision {torchvision.__version__.partition('+')[0]}, timm {timm.__version__} and "
    versions += f"segmentation_models_pytorch {smp.__version__}"
    failed = [name for found in parts.values() for name, has in found.items() if has is None]
    built = sum(len(found) for found in parts.values()) - len(failed)
    head = HEADER.format(
        versions=versions, built=built, failed=len(failed), examples=", ".join(sorted(failed)[:4]) or "-"
    )
    lines = [line for part, found in parts.items() for line in _section(part, found)]
    TABLE.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"{built} built, {len(failed)} not: {' '.join(failed)}")


def _libraries() -> tuple[Any, Any, Any]:
    """torchvision's compiled operators are not needed to build a model, and fit one release of torch only."""
    torch.library.register_fake = lambda *_, **__: lambda function: function
    operators = torch.library.Library("torchvision", "DEF")
    operators.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    names = ("torchvision", "timm", "segmentation_models_pytorch")
    torchvision, timm, smp = (importlib.import_module(name) for name in names)
    # Some models load the weights of their backbone, and choose their layers by whether there are any.
    torchvision.models.WeightsEnum.get_state_dict = lambda *_, **__: {}
    torch.nn.Module.load_state_dict = lambda *_, **__: None
    for name in [each for each in vars(torch.nn.init) if each.endswith("_") and not each.startswith("_")]:
        setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)  # numbers are not looked at
    torchvision.__dict__["operators"] = operators  # gone with it, the declaration would be too
    return torchvision, timm, smp


def _built(names: Iterable[str], build: Callable[[str], torch.nn.Module]) -> dict[str, bool | None]:
    """Name -> whether the model has a BatchNorm; None where it could not be built."""
    found: dict[str, bool | None] = {}
    for name in names:
        found[name] = None
        for device in ("meta", "cpu"):  # some compute with what they are built of
            with contextlib.suppress(Exception), torch.device(device):  # a library may refuse in any way
                found[name] = _has_batch_norm(build(name))
                break
    return found


def _has_batch_norm(model: torch.nn.Module) -> bool:
    return any(isinstance(each, torch.nn.modules.batchnorm._BatchNorm) for each in model.modules())


def _architectures(smp: Any) -> list[str]:
    return sorted(
        name
        for name, each in vars(smp).items()
        if isinstance(each, type) and issubclass(each, torch.nn.Module) and name[0].isupper()
    )


def _decoder(smp: Any, name: str) -> torch.nn.Module:
    """The decoder and the head that an architecture puts behind an encoder without BatchNorm."""
    model = getattr(smp, name)(encoder_name="mit_b0", encoder_weights=None)
    model.encoder = torch.nn.Identity()
    return model


# ------------------------------------------------------------------------------------------------ the table


def _section(part: str, found: dict[str, bool | None]) -> Iterator[str]:
    known = {name: has for name, has in found.items() if has is not None}
    entries = dict(_shortened(known))
    yield from ("", f"[{part}]")
    for key, has in (("with", True), ("without", False)):
        names = sorted(name for name, each in entries.items() if each is has)
        yield f"{key} = ["
        yield from (f'    "{name}",' for name in names)
        yield "]"


def _shortened(known: dict[str, bool]) -> Iterator[tuple[str, bool]]:
    """The shortest beginnings that decide: one whose models all agree stands for them."""
    todo = [("", sorted(known))]
    while todo:
        begin, names = todo.pop()
        kinds = {known[name] for name in names}
        if begin and len(kinds) == 1:
            yield begin, kinds.pop()
            continue
        groups: dict[str, list[str]] = {}
        for name in names:
            if name == begin:
                yield begin, known[name]
            else:
                groups.setdefault(_longer(name, begin), []).append(name)
        todo += groups.items()


def _longer(name: str, begin: str) -> str:
    """The beginning of a name that is one part longer: ``resnet``, ``resnet18``, ``resnet18_gn``; ``res`` is none."""
    at = len(begin) + 1
    while at < len(name) and not _is_border(name, at):
        at += 1
    return name[:at]


def _is_border(name: str, at: int) -> bool:
    return name[at] == "_" or (name[at].isdigit() and not name[at - 1].isdigit() and name[at - 1] != "_")


if __name__ == "__main__":
    main()
