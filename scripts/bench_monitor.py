"""Measures what ``firstfault.monitor`` costs a training step: CPU time with it beside the same steps without it.

    python scripts/bench_monitor.py [--pairs N]

Short blocks of steps with and without the monitor take turns in one process, on one thread. The first two steps of a
block are measured, in the others micro-batches and steps are counted; what counts is the median of the ratios to the
step at the same place of the neighbouring block.
"""

import argparse
import gc
import logging
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

from firstfault.monitor import monitor

GOAL = 2.0  # per cent of a step
EVERY = 50  # the default
BLOCK = 4  # steps
WIDTH, HEADS, LAYERS, WORDS = 256, 4, 3, 4_000
ROWS, LENGTH, ACCUMULATION = 2, 64, 4


class Model(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.head(self.layers(self.words(ids)))
        return answer


class Training:
    def __init__(self, model: nn.Module | None = None) -> None:
        torch.manual_seed(0)
        self.model = model or Model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.batches = [_batch() for _ in range(ACCUMULATION)]

    def step(self) -> None:
        targets = sum(int((labels != -100).sum()) for _, labels in self.batches)
        for ids, labels in self.batches:
            loss = F.cross_entropy(self.model(ids).flatten(0, 1), labels.flatten(), reduction="sum")
            (loss / targets).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def timed(self) -> float:
        began = time.process_time()
        self.step()
        return time.process_time() - began


def main() -> int:
    pairs = _options().pairs
    logging.getLogger("firstfault").setLevel(logging.ERROR)  # it warns of BatchNorm on tiny batches, and is right
    torch.set_num_threads(1)
    gc.disable()  # its runs would fall on one of the two
    training = Training()
    for _ in range(3):
        training.step()
    ratios: list[list[float]] = [[] for _ in range(BLOCK)]
    plain: list[float] = []
    for turn in range(pairs):
        watched, without = _both(training, turn % 2 == 0)
        plain += without
        for each, one, other in zip(ratios, watched, without, strict=True):
            each.append(one / other)
        gc.collect()
    report(training, ratios, statistics.median(plain))
    print(f"To a step of a tiny model with BatchNorm it adds {added():.2f} ms where it is measured.")
    return 0


def _both(training: Training, first: bool) -> tuple[list[float], list[float]]:
    """A block with the monitor and one without, in this order or the other."""
    before = [] if first else [training.timed() for _ in range(BLOCK)]
    with monitor(training.model, every=EVERY):
        watched = [training.timed() for _ in range(BLOCK)]
    return watched, before or [training.timed() for _ in range(BLOCK)]


def report(training: Training, ratios: list[list[float]], plain: float) -> None:
    measured, counted = (_share([each for block in part for each in block]) for part in (ratios[:2], ratios[2:]))
    amortised = (measured + (EVERY - 1) * counted) / EVERY
    print(f"{'with firstfault.monitor':<40}{'share of a step':>16}{'goal':>8}")
    print(f"{'a step that is measured':<40}{measured:>14.2f} %{'-':>8}")
    print(f"{'a step that is only counted':<40}{counted:>14.2f} %{'-':>8}")
    print(f"{f'training, one step in {EVERY} is measured':<40}{amortised:>14.2f} %{f'< {GOAL:g} %':>8}")
    parameters = sum(each.numel() for each in training.model.parameters())
    print(
        f"\nA step takes {plain * 1e3:.0f} ms of CPU time: {parameters / 1e6:.1f} M parameters, {ACCUMULATION} "
        f"micro-batches of {ROWS} x {LENGTH} tokens, one thread. Medians of {len(ratios[0])} blocks."
    )


def added(repetitions: int = 60) -> float:
    """Milliseconds, where nearly nothing else takes time: the fixed cost, which no noise of a long step hides."""
    model = nn.Sequential(nn.Embedding(WORDS, 4), nn.BatchNorm1d(LENGTH), nn.Linear(4, 10))
    training = Training(model)
    training.batches = [(ids, labels.clamp(max=9)) for ids, labels in training.batches]
    differences = []
    for turn in range(repetitions):
        watched, without = _both(training, turn % 2 == 0)
        differences.append(1e3 * (statistics.mean(watched[:2]) - statistics.mean(without[:2])))
    return statistics.median(differences)


def _share(ratios: list[float]) -> float:
    return 100 * (statistics.median(ratios) - 1)


def _batch() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(0, WORDS, (ROWS, LENGTH))
    labels = torch.where(torch.rand(ROWS, LENGTH) < 0.8, torch.roll(ids, -1, 1), -100)
    return ids, labels


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15, help="blocks of each kind (default 15)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
