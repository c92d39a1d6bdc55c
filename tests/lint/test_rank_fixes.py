"""Fixes about ranks are run on two processes: torch's own gradients before and after, against those of both ranks."""

from pathlib import Path

from document import read_document
from mended import mended
from proof import DIFFERENT, EQUAL, UNIFORM, VARIABLE
from ranks import on_two_ranks

PROOFS = Path(__file__).parent / "proofs"


def test_gradients_are_shared_in_the_micro_batch_that_steps(tmp_path: Path) -> None:
    (case,) = read_document(PROOFS / "no-sync-on-step-ranks.md")
    after = mended("GA303", case.source)
    for faulty, right in on_two_ranks([(case.source, UNIFORM), (after, UNIFORM)], tmp_path):
        assert len(faulty) == len(right) == 2
        assert min(faulty) >= DIFFERENT and max(right) <= EQUAL, (faulty, right)


def test_the_mean_over_ranks_is_undone(tmp_path: Path) -> None:
    (case,) = read_document(PROOFS / "missing-world-factor-ranks.md")
    after = mended("GA302", case.source)
    for faulty, right in on_two_ranks([(case.source, VARIABLE), (after, VARIABLE)], tmp_path):
        assert len(faulty) == len(right) == 4
        assert all(abs(each - 0.5) < 1e-9 for each in faulty) and max(right) <= EQUAL, (faulty, right)
