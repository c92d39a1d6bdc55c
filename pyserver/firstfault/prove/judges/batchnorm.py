"""BatchNorm under accumulation, on tiny batches, under checkpoints, and synchronised over ranks only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from firstfault.prove.measured import Measured, Part
from firstfault.prove.verdict import Verdict, judge

FEWEST = 16  # values for each channel; accumulation.md, section 7
SCATTERED = 3.0  # times the scatter of independent samples; the same section
_CODES = ("BN501", "BN502", "BN503", "BN504")


@judge
def batchnorm(measured: Measured) -> Iterator[Verdict]:
    """What the layers that were trained did in the window that shows most of it."""
    parts = [part for window in measured.complete for part in window.parts]
    noted = [why for probe, why in measured.notes if probe == "batchnorm"]
    if not parts or noted:
        why = noted[0] if noted else f"No window was complete. {measured.ended}"
        yield from (Verdict(code, "not measured", why) for code in _CODES)
        return
    part = max(parts, key=_told)
    layers: list[dict[str, Any]] = part.values.get("batchnorm", [])
    if not layers:
        unseen = part.values.get("batchnorm_compiled", False)
        why = "The model is compiled, and its layers are not seen." if unseen else _none(part, len(measured.complete))
        yield from (Verdict(code, "not measured" if unseen else "refuted", why) for code in _CODES)
        return
    yield _tiny(layers)
    yield _recomputed(layers)
    yield from _accumulated(layers, part.accumulated)


def _told(part: Part) -> tuple[int, int]:
    """Drift is known from the second batch on: of windows that are alike the later one tells more."""
    layers = part.values.get("batchnorm", [])
    return part.accumulated, sum(each["drift"] is not None for each in layers)


def _none(part: Part, windows: int) -> str:
    still = part.values.get("batchnorm_still", 0)
    beside = f" {_layers(still)} ran in evaluation mode." if still else ""
    return f"No BatchNorm layer was in training mode in {windows} window{'s' if windows > 1 else ''}.{beside}"


def _accumulated(layers: list[dict[str, Any]], k: int) -> Iterator[Verdict]:
    """Synchronised over ranks or not: no layer sees more than its micro-batch."""
    plain = [each for each in layers if not each["synchronised"]]
    synchronised = [each for each in layers if each["synchronised"]]
    if k == 1 or max(each["batches"] for each in layers) < k:
        why = "No step had several micro-batches; with accumulation there is more to see."
        yield from (Verdict(code, "not measured", why) for code in ("BN501", "BN504"))
        return
    if plain:
        yield Verdict("BN501", "proven", _by_itself(plain, k))
    if synchronised:
        yield Verdict("BN504", "proven", _by_itself(synchronised, k), also=("BN501",))
    else:
        yield Verdict("BN504", "refuted", "No SyncBatchNorm layer was in training mode.")


def _by_itself(layers: list[dict[str, Any]], k: int) -> str:
    verb = "normalises" if len(layers) == 1 else "normalise"
    return f"{_layers(len(layers))} {verb} each of the {k} micro-batches by itself{_statistics(layers)}."


def _statistics(layers: list[dict[str, Any]]) -> str:
    most = max(layers, key=lambda each: each["updates"])
    told = ""
    if most["updates"] > 1:
        told = f"; running statistics are updated {most['updates']} times a step"
        if most["momentum"] is not None:
            acting = 1 - (1 - most["momentum"]) ** most["updates"]
            told += f", so that momentum {most['momentum']:g} acts as {acting:.3g}"
    drifts = [each["drift"] for each in layers if each["drift"] is not None]
    if drifts:
        told += f". Means of micro-batches are {max(drifts):.2g} deviations away from the running mean"
    return told + _scatter(layers)


def _scatter(layers: list[dict[str, Any]]) -> str:
    """Said only where it changes what to do: variances between micro-batches are lost."""
    known = [each["spread"] for each in layers if each["spread"] is not None]
    if not known or max(known) <= SCATTERED:
        return ""
    return f". They scatter {max(known):.3g} times as much as those of independent samples would"


def _tiny(layers: list[dict[str, Any]]) -> Verdict:
    fewest = min(layers, key=lambda each: each["elements"])
    state = f"{_name(fewest)} takes its statistics from {fewest['elements']:,} values for each channel"
    if fewest["elements"] < FEWEST:
        return Verdict("BN502", "proven", f"{state}; below {FEWEST} they are mostly noise.")
    return Verdict("BN502", "refuted", f"{state}, and no layer from fewer.")


def _recomputed(layers: list[dict[str, Any]]) -> Verdict:
    twice = [each for each in layers if each["recomputed"]]
    if not twice:
        return Verdict("BN503", "refuted", f"{_layers(len(layers))} ran, none of them again during backward.")
    one = twice[0]
    return Verdict(
        "BN503",
        "proven",
        f"A checkpoint runs {_layers(len(twice))} again during backward: {_name(one)} updates its running statistics "
        f"{one['updates']} times for {one['batches']} batch{'' if one['batches'] == 1 else 'es'}.",
    )


def _name(layer: dict[str, Any]) -> str:
    return f"{layer['kind']}({layer['channels']}){' ' + repr(layer['layer']) if layer['layer'] else ''}"


def _layers(number: int) -> str:
    return f"{number} BatchNorm layer{'' if number == 1 else 's'}"
