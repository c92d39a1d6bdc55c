"""Large logs: no failure is lost that reading everything would find, and what is kept is bounded, whatever the text."""

import random
import string
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstfault import logs
from firstfault.diagnose import diagnose
from firstfault.diagnose.report import Report
from firstfault.library import load
from firstfault.logs import scan, source
from firstfault.logs.anchors import Anchors
from firstfault.logs.lines import LONGEST, Piece
from firstfault.logs.shapes import DROPPED
from firstfault.logs.source import from_paths

WORDS = [
    "river",
    "lake",
    "gauge",
    "level",
    "flow",
    "depth",
    "basin",
    "delta",
    "spring",
    "tide",
    "marsh",
    "canal",
    "sluice",
    "weir",
]

# ------------------------------------------------------------------------------------------ nothing is lost

FAILURES = {
    "user-exception": [
        "Traceback (most recent call last):",
        '  File "/home/eve/wells/train.py", line 61, in <module>',
        "    main()",
        '  File "/home/eve/wells/train.py", line 40, in main',
        "    raise WellError(f'well {number} has no depth')",
        "wells.errors.WellError: well 17 has no depth",
    ],
    "matmul-shape": [
        "Traceback (most recent call last):",
        '  File "/home/eve/wells/train.py", line 61, in <module>',
        "    return self.head(self.body(flow))",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x7 and 8x16)",
    ],
    "sigsegv": [
        "Fatal Python error: Segmentation fault",
        "",
        "Thread 0x00007f0000000740 (most recent call first):",
        '  File "/home/eve/wells/train.py", line 40 in main',
        '  File "/home/eve/wells/train.py", line 61 in <module>',
    ],
    "host-oom-kill": [
        "[91234.567890] Out of memory: Killed process 4242 (python3) total-vm:81234567kB, anon-rss:61234567kB"
    ],
}


def background(kind: str, chance: random.Random, lines: int) -> list[str]:
    """Lines of a program at work: alike but for numbers, bars of carriage returns, or no two alike."""
    made = []
    for step in range(lines):
        if kind == "alike":
            made.append(f"[rank{step % 4}]: step {step} loss {chance.random():.4f} tokens {chance.randrange(9999)}")
        elif kind == "bars":
            made.append("".join(f"\r {share}%|{'#' * share:<9}| {step}/{lines}" for share in range(9)))
        else:
            made.append(f"sample {step}: {' '.join(chance.choices(WORDS, k=8))} {chance.random():.3f}")
    return made


def read_both_ways(text: str) -> tuple[Report, Report]:
    """The report of the whole text, and that of the large path with blocks, and allowances, of a small scale."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.log"
        path.write_bytes(text.encode())
        whole = _report(path)
        with mock.patch.multiple(scan, SMALL=10_000, JOB_COST=1_000), mock.patch.object(source, "CHUNK", 4096):
            return whole, _report(path)


def _report(path: Path) -> Report:
    library = load()
    return diagnose(logs.read(from_paths([str(path)]), library.prefixes), library)


@settings(max_examples=50, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    failure=st.sampled_from(sorted(FAILURES)),
    kind=st.sampled_from(["alike", "bars", "none alike"]),
    place=st.floats(0, 1),
    count=st.integers(200, 1500),
    goes_on=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_the_first_failure_is_found_wherever_it_stands(
    failure: str, kind: str, place: float, count: int, goes_on: bool, seed: int
) -> None:
    lines = background(kind, random.Random(seed), count)
    at = int(place * len(lines))
    # Behind it the program goes on, or has ended and another writes to the same log.
    rest = lines[at:] if goes_on else [f"monitor: gauge {number} is dry" for number in range(len(lines) - at)]
    whole, large = read_both_ways("\n".join([*lines[:at], *FAILURES[failure], *rest]) + "\n")
    assert (large.verdict, large.read.lines) == (whole.verdict, whole.read.lines)
    assert (large.initiating is None) == (whole.initiating is None)
    if whole.initiating and large.initiating:
        assert large.initiating[:10] == whole.initiating[:10]
        assert large.initiating.evidence[0] == whole.initiating.evidence[0]


@pytest.mark.parametrize("failure", FAILURES)
def test_the_failure_itself_is_found(failure: str) -> None:
    """The property above compares; this one knows the answer."""
    lines = background("none alike", random.Random(3), 3000)
    lines[1500:] = [*FAILURES[failure], *(f"monitor: gauge {number}" for number in range(3000))]
    large = read_both_ways("\n".join(lines))[1]
    assert large.initiating is not None and large.initiating.signature == failure
    assert large.initiating.evidence[0].line in range(1501, 1508)


def selected(texts: Iterator[bytes], job_cost: int = scan.JOB_COST) -> tuple[list[Piece], scan.Counter]:
    with mock.patch.object(scan, "JOB_COST", job_cost):
        counter = scan.Counter()
    return list(scan.worth_reading(((data, len(data)) for data in texts), counter)), counter


def test_a_literal_in_a_common_shape_is_kept_first_and_last() -> None:
    """A warning that comes all the time has a literal of a signature: its shape never becomes too common to be seen."""
    line = "rank {}: DataLoader worker (pid {}) is killed by signal: Killed.\n"
    text = "".join(f"step {step} loss 0.5\n" + line.format(step % 8, step) for step in range(30_000))
    pieces, _ = selected(iter(text[at : at + 65536].encode() for at in range(0, len(text), 65536)))
    kept = [piece.number for piece in pieces if "DataLoader" in piece.raw]
    assert kept[:16] == list(range(2, 34, 2))
    assert kept[-1] == 60_000
    assert len(pieces) < 10_000


def test_a_literal_in_the_middle_of_a_common_shape_is_kept() -> None:
    """Only numbers tell the one line from thousands of its shape; its literal does."""
    lines = [
        f"NVRM: Xid (PCI:0000:3b:00): {number % 7}, pid 1" if number % 2 else f"step {number}"
        for number in range(60_000)
    ]
    lines[40_001] = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, GPU has fallen off the bus."
    text = "\n".join(lines).encode()
    pieces, _ = selected(text[at : at + 65536] for at in range(0, len(text), 65536))
    assert any("fallen off the bus" in piece.raw for piece in pieces)


@pytest.mark.parametrize("kind", ["alike", "bars", "none alike"])
def test_lines_are_counted_and_numbered_as_they_stand(kind: str) -> None:
    text = "\n".join(background(kind, random.Random(5), 30_000))
    lines = text.split("\n")
    pieces, counter = selected(iter(text[at : at + 50_001].encode() for at in range(0, len(text), 50_001)))
    assert counter.lines == len(lines)
    assert counter.bytes == len(text.encode())
    assert all(piece.raw in lines[piece.number - 1] for piece in pieces)
    assert [piece.number for piece in pieces] == sorted(piece.number for piece in pieces)
    assert pieces[-1].number == len(lines) and pieces[0].number == 1


# ------------------------------------------------------------------------------------------ what is kept is bounded


def every_line_new() -> Iterator[bytes]:
    chance = random.Random(7)
    for _ in range(20):
        yield "".join("".join(chance.choices(string.ascii_letters, k=90)) + "\n" for _ in range(700)).encode()


def one_line() -> Iterator[bytes]:
    chance = random.Random(8)
    for _ in range(20):
        yield "".join(chance.choices(string.ascii_letters + " ", k=65536)).encode()


def only_carriage_returns() -> Iterator[bytes]:
    for number in range(20):
        yield "".join(f"{share / 7:.2f}% of {number}\r" for share in range(5000)).encode()


def errors_without_end() -> Iterator[bytes]:
    chance = random.Random(9)
    for _ in range(20):
        names = ("".join(chance.choices(string.ascii_letters, k=6)) for _ in range(1000))
        yield "".join(
            f"{name}Error: CUDA out of memory. Tried to allocate {name} of {name}\n" for name in names
        ).encode()


HOSTILE = [every_line_new, one_line, only_carriage_returns, errors_without_end]


@pytest.mark.parametrize("texts", HOSTILE, ids=lambda each: each.__name__)
def test_hostile_text_keeps_memory_bounded(texts: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(texts)
    monkeypatch.setattr(scan, "SMALL", 100_000)
    load()  # The library is not what is measured.
    tracemalloc.start()
    try:
        pieces, counter = selected(texts(), job_cost=2_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert counter.bytes > 1_000_000
    assert len(pieces) < 3_000
    assert max(len(piece.raw) for piece in pieces) <= LONGEST
    assert sum(len(piece.raw) for piece in pieces) < 1_000_000
    assert peak < 12_000_000


def test_the_files_of_one_job_share_what_may_be_kept(tmp_path: Path) -> None:
    for rank in range(40):
        lines = background("none alike", random.Random(rank), 1500)
        (tmp_path / f"rank_{rank}.log").write_text("\n".join(lines))
    sources = from_paths([str(tmp_path)])
    job = scan.Job(sources)
    kept = [len(list(scan.worth_reading(source.chunks(each, []), scan.Counter(job)))) for each in sources]
    assert sum(kept) < 1.5 * scan.JOB_COST
    assert min(kept) >= 12


def test_a_folder_is_one_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file of it may be small; the folder is not."""
    monkeypatch.setattr(scan, "SMALL", 50_000)
    for rank in range(20):
        (tmp_path / f"rank_{rank}.log").write_text("\n".join(background("alike", random.Random(rank), 800)))
    log = logs.read(from_paths([str(tmp_path)]), load().prefixes)
    assert sum(each.lines for each in log.files) == 16_000
    assert len(log.lines) < 2_000


def test_a_small_job_is_read_whole() -> None:
    text = "".join(f"step {step}\n" for step in range(2000)).encode()
    pieces, counter = selected(iter([text]))
    assert len(pieces) == counter.lines == 2000


# ------------------------------------------------------------------------------------------ anchors


@given(
    literals=st.sets(st.text(alphabet="abKX: _9", min_size=1, max_size=6), min_size=1, max_size=6),
    lines=st.lists(st.text(alphabet="abKX: _9", max_size=14), max_size=6),
)
@settings(deadline=None, derandomize=True, database=None)
def test_anchors_find_every_literal(literals: set[str], lines: list[str]) -> None:
    known = {literal.encode(): literal.encode().translate(None, DROPPED) for literal in literals}
    known = {literal: stripped for literal, stripped in known.items() if stripped}
    if not known:
        return
    shapes = [line.encode().translate(None, DROPPED) for line in lines]
    held = {shape: tuple(sorted(each for each, stripped in known.items() if stripped in shape)) for shape in shapes}
    assert Anchors(known, DROPPED).found(shapes) == {shape: each for shape, each in held.items() if each}
