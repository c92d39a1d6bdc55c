"""Whose line called: the first frame outward that belongs to the user, else to whatever called torch."""

from __future__ import annotations

import os
import sys

import torch

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}", "<frozen ")


def calling_line() -> tuple[str, int]:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_TORCH, _OURS)):
        frame = frame.f_back
    nearest = frame.f_code.co_filename, frame.f_lineno
    walking = frame
    while walking is not None:
        name = walking.f_code.co_filename
        if not any(each in name for each in _INSTALLED) and not name.startswith((_TORCH, _OURS)):
            return name, walking.f_lineno
        walking = walking.f_back  # type: ignore[assignment]
    return nearest
