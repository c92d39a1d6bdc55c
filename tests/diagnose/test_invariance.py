"""What must not change the answer: ranks' numbers, their interleaving, a healthy hour before, idle ranks beside.

And where the culprit's own lines are missing, no other rank may be asserted in its place.
"""

import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from firstfault.diagnose.report import Report
from reading import report_of

CASES = Path(__file__).parent.parent / "cases"
RANK = re.compile(r"\[rank(\d+)\]")
# Recorded runs whose culprit speaks with its own prefix.
SPOKEN = {"value-rank2": 2, "key-rank1": 1, "shape-rank2": 2}

bounded = settings(
    max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)


def told(report: Report) -> tuple[str, str | None, int | str | None]:
    first = report.initiating
    return report.verdict, first.signature if first else None, first.rank if first else None


# ------------------------------------------------------------------------------------------ texts of several ranks

CULPRITS = {
    "user-exception": ("    raise ValueError(f'well {name} has no depth')", "ValueError: well 17 has no depth"),
    "matmul-shape": (
        "    return self.head(self.body(flow))",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x7 and 8x16)",
    ),
    "cuda-oom": (
        "    loss.backward()",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"
        " 23.64 GiB of which 1.10 GiB is free. Including non-PyTorch memory, this process has 22.50 GiB memory in use."
        " Of the allocated memory 21.90 GiB is allocated by PyTorch, and 120.00 MiB is reserved by PyTorch but"
        " unallocated.",
    ),
}
CLOSED = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer"
    " [127.0.0.1]:4485. This is typically caused by a remote worker crashing."
)


class Job:
    """A generated console text: each rank's own lines, and in which order the ranks wrote."""

    def __init__(self, kind: str, ranks: int, culprit: int, steps: int, witnesses: Sequence[int]) -> None:
        self.kind, self.culprit = kind, culprit
        self.own = {
            rank: [f"step {step} loss {1 / (step + 1 + rank):.4f}" for step in range(steps)] for rank in range(ranks)
        }
        source, message = CULPRITS[kind]
        self.own[culprit] += _traceback("fail", source, message)
        for rank in witnesses:
            if rank != culprit and rank < ranks:
                self.own[rank] += _traceback("share", "    dist.all_reduce(seen)", CLOSED)

    def __repr__(self) -> str:
        return f"Job({self.kind}, culprit={self.culprit}, {self.own})"

    def text(self, order: random.Random, names: dict[int, int] | None = None, without: int | None = None) -> str:
        left = {rank: list(lines) for rank, lines in self.own.items() if lines and rank != without}
        lines = []
        while left:
            rank = order.choice(sorted(left))
            lines.append(f"[rank{(names or {}).get(rank, rank)}]: {left[rank].pop(0)}\n")
            if not left[rank]:
                del left[rank]
        return "".join(lines)


def _traceback(function: str, source: str, message: str) -> list[str]:
    return [
        "Traceback (most recent call last):",
        '  File "/home/eve/wells/train.py", line 61, in main',
        f"    {function}(wells)",
        f'  File "/home/eve/wells/train.py", line 40, in {function}',
        source,
        message,
    ]


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    ranks = draw(st.integers(2, 6))
    return Job(
        draw(st.sampled_from(sorted(CULPRITS))),
        ranks,
        draw(st.integers(0, ranks - 1)),
        draw(st.integers(0, 4)),
        draw(st.lists(st.integers(0, ranks - 1), unique=True)),
    )


seeds = st.integers(0, 2**32).map(random.Random)


@bounded
@given(job=jobs(), order=seeds)
def test_another_interleaving_gives_the_same_answer(job: Job, order: random.Random) -> None:
    assert told(report_of(job.text(order)))[1:] == (job.kind, job.culprit)


@bounded
@given(job=jobs(), order=seeds, names=st.permutations(range(9)))
def test_other_numbers_of_the_ranks_give_the_other_number(job: Job, order: random.Random, names: list[int]) -> None:
    text = job.text(order, dict(enumerate(names)))
    assert told(report_of(text))[1:] == (job.kind, names[job.culprit])


@bounded
@given(job=jobs(), order=seeds, minutes=st.integers(1, 60))
def test_a_healthy_hour_before_changes_nothing(job: Job, order: random.Random, minutes: int) -> None:
    assert told(report_of(healthy(minutes, ranks=len(job.own)) + job.text(order)))[1:] == (job.kind, job.culprit)


@bounded
@given(job=jobs(), order=seeds, idle=st.integers(1, 4))
def test_unrelated_healthy_ranks_change_nothing(job: Job, order: random.Random, idle: int) -> None:
    others = {rank: [f"step {step} loss 0.5" for step in range(3)] for rank in range(10, 10 + idle)}
    job.own.update(others)
    assert told(report_of(job.text(order)))[1:] == (job.kind, job.culprit)


@bounded
@given(job=jobs(), order=seeds)
def test_without_the_culprits_lines_no_other_rank_is_asserted(job: Job, order: random.Random) -> None:
    report = report_of(job.text(order, without=job.culprit))
    witnesses = [rank for rank, lines in job.own.items() if rank != job.culprit and CLOSED in lines]
    assert report.verdict == ("symptom-only" if witnesses else "no-failure")
    assert told(report)[1] == ("gloo-closed" if witnesses else None)
    assert told(report)[2] in (None, *(each.rank for each in report.suspects))
    assert not witnesses or told(report)[2] not in witnesses


@bounded
@given(job=jobs(), other=st.sampled_from(sorted(CULPRITS)), orders=st.tuples(seeds, seeds))
def test_of_two_culprits_none_is_the_first_whoever_wrote_earlier(
    job: Job, other: str, orders: tuple[random.Random, random.Random]
) -> None:
    assume(other != job.kind)
    job.own[77] = _traceback("fail", *CULPRITS[other])
    one, again = (report_of(job.text(order)) for order in orders)
    assert told(one) == told(again)
    assert (one.verdict, told(one)[2]) == ("symptom-only", None)
    assert [each.rank for each in one.suspects] == [job.culprit, 77]


# ------------------------------------------------------------------------------------------ recorded runs


@pytest.mark.parametrize("name", SPOKEN)
@bounded
@given(names=st.permutations(range(4)))
def test_renumbered_recordings(name: str, names: list[int]) -> None:
    assert told(report_of(renumbered(recording(name), names)))[2] == names[SPOKEN[name]]


@pytest.mark.parametrize("name", SPOKEN)
@bounded
@given(order=seeds)
def test_interleaved_recordings(name: str, order: random.Random) -> None:
    text = recording(name)
    assert told(report_of(shuffled(text, order))) == told(report_of(text))


@pytest.mark.parametrize("path", sorted(CASES.glob("*.log")), ids=lambda path: path.stem)
def test_a_healthy_hour_before_a_recording(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert told(report_of(healthy(60, ranks=0) + text)) == told(report_of(text))


@pytest.mark.parametrize("name", SPOKEN)
def test_recordings_without_the_culprits_lines(name: str) -> None:
    text = "".join(line for line in lines_of(recording(name)) if f"[rank{SPOKEN[name]}]" not in line)
    report = report_of(text)
    assert report.verdict == "symptom-only"
    assert report.initiating is None or report.initiating.rank_basis != "stated"


def recording(name: str) -> str:
    return (CASES / f"{name}.log").read_text(encoding="utf-8")


def lines_of(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def healthy(minutes: int, ranks: int) -> str:
    """An hour in which nothing happened; without ranks as a program prints that knows none."""
    steps = range(minutes * 4)
    if not ranks:
        return "".join(f"epoch 0 step {step} loss {2 - step / 999:.4f}\n" for step in steps)
    return "".join(f"[rank{rank}]: step {step} loss {2 - step / 999:.4f}\n" for step in steps for rank in range(ranks))


def renumbered(text: str, names: Sequence[int]) -> str:
    """Every place where a launcher or a prefix numbers a rank. On one node global and local numbers are the same."""

    def other(found: re.Match[str]) -> str:
        return found[1] + str(names[int(found[2])])

    return re.sub(r"(\[rank|\brank +: |local_rank: |\[default)(\d+)(?=\D)", other, text)


def shuffled(text: str, order: random.Random) -> str:
    """The ranks' lines in another interleaving, each rank's own order kept; all other lines stay where they are."""
    lines = lines_of(text)
    places = [at for at, line in enumerate(lines) if RANK.match(line)]
    left: dict[str, list[str]] = {}
    for at in places:
        left.setdefault(RANK.findall(lines[at])[0], []).append(lines[at])
    turns = [rank for rank, own in left.items() for _ in own]
    order.shuffle(turns)
    for at, rank in zip(places, turns, strict=True):
        lines[at] = left[rank].pop(0)
    return "".join(lines)
