"""Invented data and models of the scripts: seeded, tiny, made in milliseconds."""

import torch
from torch import nn

WORDS = 11
LONG_AND_SHORT = [[2, 11], [5, 1], [1, 1], [9, 12], [3, 2], [12, 4], [1, 8], [2, 2], [7, 1], [4, 4], [1, 3], [12, 12]]
ALIKE = [[6, 6]] * 12


def language_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(WORDS, 6), nn.Linear(6, WORDS))


def text(lengths: list[list[int]] = LONG_AND_SHORT) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Micro-batches of token ids and labels; what lies beyond a row's length is padding, its label -100."""
    torch.manual_seed(1)
    width = max(max(rows) for rows in lengths)
    found = []
    for rows in lengths:
        ids, labels = torch.randint(0, WORDS, (len(rows), width)), torch.randint(0, WORDS, (len(rows), width))
        labels[torch.arange(width) >= torch.tensor(rows)[:, None]] = -100
        found.append((ids, labels))
    return found


def points(batches: int = 12, size: int = 4) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Micro-batches of vectors and their classes."""
    torch.manual_seed(2)
    return [(torch.randn(size, 5), torch.randint(0, 3, (size,))) for _ in range(batches)]


def classifier(norm: nn.Module | None = None) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), norm or nn.Identity(), nn.Tanh(), nn.Linear(8, 3))


def images(batches: int = 8, size: int = 4) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(3)
    return [(torch.randn(size, 3, 6, 6), torch.randint(0, 3, (size,))) for _ in range(batches)]


def pictures_model(norm: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(128, 3))
