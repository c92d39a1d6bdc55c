"""Two gradients as numbers: relative error, ratio of norms, cosine, the parameter that differs most; and shares.

All errors are relative to the norm of the whole reference. A parameter's own relative error says nothing: where the
true gradient is zero (the bias of a key projection) it is large in a right run.
"""

from __future__ import annotations

import math
from typing import Any

import torch

Names = list[tuple[str, int]]


def pair(found: torch.Tensor, wanted: torch.Tensor, names: Names) -> dict[str, Any]:
    size = float(wanted.norm())
    if size == 0.0 or not math.isfinite(size):
        return {"error": None, "ratio": None, "cosine": None, "worst": None}
    difference = found - wanted
    error, ratio = float(difference.norm()) / size, float(found.norm()) / size
    cosine = float(torch.dot(found, wanted)) / (float(found.norm()) * size) if ratio else 0.0
    if not math.isfinite(error):
        return {"error": None, "ratio": None, "cosine": None, "worst": None}
    return {"error": error, "ratio": ratio, "cosine": cosine, "worst": _worst(difference, size, names)}


def error(found: torch.Tensor, wanted: torch.Tensor) -> float | None:
    answer: float | None = pair(found, wanted, [])["error"]
    return answer


def _worst(difference: torch.Tensor, size: float, names: Names) -> dict[str, Any] | None:
    if not names:
        return None
    parts = torch.split(difference, [length for _, length in names])
    shares = [float(part.norm()) / size for part in parts]
    place = max(range(len(shares)), key=shares.__getitem__)
    return {"name": names[place][0], "share": shares[place]}


def shares(found: torch.Tensor, parts: list[torch.Tensor]) -> tuple[list[float] | None, float | None]:
    """How much of each micro-batch's own mean gradient is in what the loop left; and what none of them explains.

    Least squares by way of the small matrix of inner products; None where the parts cannot be told apart.
    """
    kept = [place for place, part in enumerate(parts) if float(part.norm()) > 0]
    if not kept or not bool(torch.isfinite(found).all()) or any(not bool(torch.isfinite(part).all()) for part in parts):
        return None, None
    sizes = [float(parts[place].norm()) for place in kept]
    matrix = torch.stack([parts[place] / size for place, size in zip(kept, sizes)], dim=1)
    q, r = torch.linalg.qr(matrix)
    diagonal = r.diagonal().abs()
    if matrix.shape[0] < matrix.shape[1] or float(diagonal.min()) < 1e-4 * float(diagonal.max()):
        return None, None
    solved = torch.linalg.solve_triangular(r, (q.T @ found).unsqueeze(1), upper=True).squeeze(1)
    rest = float((found - matrix @ solved).norm()) / max(float(found.norm()), 1e-300)
    answer = [0.0] * len(parts)
    for place, value, size in zip(kept, solved.tolist(), sizes):
        answer[place] = value / size
    return answer, rest
