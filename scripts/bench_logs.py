"""Measures the diagnosis of large logs: peak memory, and CPU time beside ripgrep with 500 literals in the same run.

    python scripts/bench_logs.py [--quick] [--megabytes N] [--repetitions N]

A console log of 2 GB (200 MB with --quick) whose failure stands at its end, and a folder of 512 rank files of 1 MB
with failures in a few, are made in a temporary folder and removed afterwards. What counts is the ratio of CPU times.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from firstfault.library import load

FIRSTFAULT = [sys.executable, "-m", "firstfault", "diagnose"]
RIPGREP = Path(sys.executable).parent / "rg"
# One thread, bytes as they are, and nothing of the user's configuration or of ignore files.
RIPGREP_OPTIONS = ["--no-config", "--no-ignore", "--hidden", "--text", "--no-unicode", "--threads=1", "--no-mmap"]
LITERALS = 500
GOAL_RATIO, GOAL_MEGABYTES = 2.0, 100.0
FILES, FILE_BYTES = 512, 1 << 20
RANKS = 8
SEGMENT = 8 << 20


class Run(NamedTuple):
    cpu: float
    megabytes: float
    output: str


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="firstfault-bench-") as folder:
        literals = Path(folder) / "literals.txt"
        count = write_literals(literals)
        print(f"{'what':<34}{'CPU':>9}{'MB/s':>7}{'peak':>9}   {f'rg, {count} literals':<18}{'ratio':>8}{'goal':>8}")
        console = Path(folder) / "console.log"
        write_console(console, options.megabytes << 20)
        compare(f"console log, {_size(console)}", console, literals, options.repetitions, "out of memory")
        console.unlink()
        ranks = Path(folder) / "ranks"
        write_rank_files(ranks)
        compare(f"{FILES} rank files, {_size(ranks)}", ranks, literals, options.repetitions, "Rank 301")
    print(
        f"\nLoad average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores. Peak memory: goal < {GOAL_MEGABYTES:g} MB."
    )
    return 0


def compare(what: str, path: Path, literals: Path, repetitions: int, wanted: str) -> None:
    """Both in turns, so that both see the same load; the answer must be right, or its speed is worth nothing."""
    search = [str(RIPGREP), *RIPGREP_OPTIONS, "--fixed-strings", "--count", "--file", str(literals), str(path)]
    pairs = [(measured([*FIRSTFAULT, str(path)], 1), measured(search, 0, 1)) for _ in range(repetitions)]
    answer = pairs[0][0].output
    if wanted not in "".join(answer.splitlines(keepends=True)[:3]):
        raise SystemExit(f"The diagnosis of the {what} is wrong:\n{answer}")
    own, other = (statistics.median(run.cpu for run in runs) for runs in zip(*pairs, strict=True))
    peak = max(own.megabytes for own, _ in pairs)
    speed = _bytes(path) / own / 1e6
    print(
        f"{what:<34}{own:>7.2f} s{speed:>7.0f}{peak:>6.0f} MB   {other:>16.2f} s{own / other:>8.2f}x"
        f"{'<= ' + format(GOAL_RATIO, 'g') + 'x':>7}"
    )


def measured(command: list[str], *statuses: int) -> Run:
    """The command's user and system time and its peak memory, as the kernel tells when it ends."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, code, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(code)
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    if process.returncode not in statuses:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{text}")
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return Run(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / unit, text)


def write_literals(path: Path) -> int:
    """500 literals of the signatures; where they are fewer, made ones of the same kind besides."""
    known = {each for signature in load().signatures.values() for match in signature.matches for each in match.literal}
    chance = random.Random(1)
    while len(known) < LITERALS:
        known.add(" ".join(chance.sample(WORDS, 4)))
    searched = chance.sample(sorted(known), LITERALS)
    path.write_text("".join(f"{literal}\n" for literal in searched), encoding="utf-8")
    return len(searched)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a console log of 200 MB")
    parser.add_argument("--megabytes", type=int, help="the size of the console log (default: 2000)")
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    options.megabytes = options.megabytes or (200 if options.quick else 2000)
    if not RIPGREP.exists():
        raise SystemExit("ripgrep is missing: `make bench` installs it.")
    return options


def _bytes(path: Path) -> int:
    return sum(each.stat().st_size for each in path.iterdir()) if path.is_dir() else path.stat().st_size


def _size(path: Path) -> str:
    return f"{_bytes(path) / 1e6:,.0f} MB"


# ------------------------------------------------------------------------------------------ what is measured on

WORDS = [
    "buffer",
    "shard",
    "tensor",
    "token",
    "worker",
    "stage",
    "gradient",
    "bucket",
    "optimizer",
    "layer",
    "batch",
    "stream",
    "kernel",
    "queue",
    "epoch",
]
NCCL = (
    "node-1:4{rank}17:4{rank}91 [{rank}] NCCL INFO"
    " Channel {channel:02}/16 : {rank}[{rank}] -> {peer}[{peer}] via P2P/CUMEM\n"
)
LOSS = "[rank{rank}]: step {step} loss {loss:.4f} grad_norm {norm:.3f} lr 3.0e-04 tokens/s {speed}\n"
RECORD = (
    '{{"ts": "2026-11-30T10:{minute:02}:07.{step:03}Z", "level": "info", "event": "metrics", "stage": "{kind}",'
    ' "step": {step}, "loss": {loss:.5f}, "skipped": 0, "error_rate": 0.0}}\n'
)
COUNTS = "[{step:>6}/400000] number of skipped iterations: 0 | number of nan iterations: 0 | loss scale: 65536.0 |\n"
WARNING = (
    "[rank{rank}]: /opt/env/lib/python3.11/site-packages/torch/optim/lr_scheduler.py:{line}: UserWarning: Detected call"
    " of `lr_scheduler.step()` before `optimizer.step()`.\n"
)
FAILURE = """\
[rank5]: Traceback (most recent call last):
[rank5]:   File "/home/ada/labeller/train.py", line 212, in <module>
[rank5]:     main()
[rank5]:   File "/home/ada/labeller/train.py", line 188, in main
[rank5]:     loss.backward()
[rank5]:   File "/opt/env/lib/python3.11/site-packages/torch/_tensor.py", line 648, in backward
[rank5]:     torch.autograd.backward(
[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB. GPU 5 has a total capacity of\
 79.25 GiB of which 1.72 GiB is free. Including non-PyTorch memory, this process has 77.52 GiB memory in use.\
 Of the allocated memory 70.11 GiB is allocated by PyTorch, and 5.93 GiB is reserved by PyTorch but unallocated.
"""
RANK_FAILURE = """\
Traceback (most recent call last):
  File "/home/ada/labeller/train.py", line 212, in <module>
    main()
  File "/home/ada/labeller/train.py", line 171, in main
    rows = read_shard(path, offset)
  File "/home/ada/labeller/data.py", line 64, in read_shard
    raise ValueError(f"shard {path.name} ends in the middle of record {offset}")
ValueError: shard part-00301.bin ends in the middle of record 88213
"""
RANK_CONSEQUENCE = """\
Traceback (most recent call last):
  File "/home/ada/labeller/train.py", line 212, in <module>
    main()
  File "/home/ada/labeller/train.py", line 190, in main
    dist.all_reduce(seen)
RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.3.17]:4485
"""


def write_console(path: Path, size: int) -> None:
    """A terminal's mix: bars with carriage returns, losses of eight ranks, NCCL, JSON records, some warnings."""
    with path.open("wb") as file:
        file.write(b"torchrun --nproc-per-node=8 train.py\nworld size: 8\n")
        written, step = file.tell(), 0
        while written < size:
            text = "".join(segment(step)).encode()
            written += file.write(text[: max(size - written, 1)])
            step += 1000
        file.write(b"\n" + FAILURE.encode())


def segment(first: int) -> Iterator[str]:
    chance = random.Random(first)
    for step in range(first, first + 1000):
        yield from steps(step, chance)


def steps(step: int, chance: random.Random) -> Iterator[str]:
    """A step of the run: about 4 KB."""
    for frame in range(12):
        done = (step * 12 + frame) % 5000
        yield f"\rEpoch {step // 400}: {bar(done, 5000)} [{step % 60:02}:{frame:02}<01:12, 11.{frame}it/s]"
    yield "\n"
    for rank in range(RANKS):
        loss, norm = 2 + chance.random(), chance.random()
        yield LOSS.format(rank=rank, step=step, loss=loss, norm=norm, speed=18000 + step % 977)
    for rank in range(RANKS):
        yield NCCL.format(rank=rank, peer=(rank + 1) % RANKS, channel=step % 16)
    for kind in ("train", "data"):
        yield RECORD.format(kind=kind, minute=step // 60 % 60, step=step, loss=2 + chance.random())
    yield COUNTS.format(step=step)
    if step % 40 == 0:
        yield WARNING.format(rank=step % RANKS, line=182)
    if step % 25 == 0:
        words = " ".join(chance.choices(WORDS, k=6))
        yield f"INFO:sampler:step {step}: sample '{words}' scored {chance.random():.3f}\n"


def bar(done: int, total: int) -> str:
    return f"{100 * done // total:3}%|{'█' * (20 * done // total):<20}| {done}/{total}"


def write_rank_files(folder: Path) -> None:
    folder.mkdir()
    body = rank_body()
    for rank in range(FILES):
        text = f"host node-{rank // 8} rank {rank} of {FILES}\n".encode() + body
        end = {301: RANK_FAILURE}.get(rank, RANK_CONSEQUENCE if rank in (17, 300, 302, 409) else "")
        text = text[: FILE_BYTES - len(end)].rsplit(b"\n", 1)[0] + b"\n" + end.encode()
        (folder / f"rank_{rank}.log").write_bytes(text)


def rank_body() -> bytes:
    chance, lines, size = random.Random(2), list[str](), 0
    while size < FILE_BYTES:
        step = len(lines)
        time = f"2026-11-30 10:{step // 60 % 60:02}:{step % 60:02}"
        lines.append(f"{time} step {step} loss {2 + chance.random():.4f} lr 3.0e-04\n")
        if step % 50 == 0:
            lines[-1] += "".join(f"\r{bar(done, 100)}" for done in range(0, 101, 10)) + "\n"
        size += len(lines[-1].encode())
    return "".join(lines).encode()


if __name__ == "__main__":
    sys.exit(main())
