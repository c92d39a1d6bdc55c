"""Whose line called: the first frame outward that is neither torch's nor ours."""

from __future__ import annotations

import os
import sys

import torch

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


def calling_line() -> tuple[str, int]:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_TORCH, _OURS)):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
