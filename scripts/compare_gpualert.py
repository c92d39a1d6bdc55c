"""GPUAlert's classifier beside ours, on folders of labelled logs.

    python scripts/compare_gpualert.py --gpualert-python ENV/bin/python CASES [CASES ...]

A case is a folder with ``expected.json`` (``accept``: the ids that are right) beside ``log.txt`` or ``logs/``. GPUAlert
(PyPI ``gpualert``) stays in an environment of its own and is asked as a black box, by its public function. It gets the
log as standard error, with status 0 where the run had no failure, else 1. A sentence that says only that Python raised
something, or that the process ended, names no class: it counts as none, not as wrong, unless nothing had failed. Where
its class covers several of ours, each of them counts as right.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from firstfault import logs
from firstfault.diagnose import diagnose
from firstfault.library import load
from firstfault.logs.source import from_paths

ASK = (
    "import json, sys; from gpualert.parse_errors import parse_errors\n"
    "for line in sys.stdin:\n"
    "    text, status = json.loads(line)\n"
    "    print(json.dumps((parse_errors('', text, status).strip() + '\\n').split('\\n')[0]), flush=True)\n"
)
# Its sentences, and the failures of ours that they mean: ids, or whole categories.
MEANS: dict[str, frozenset[str]] = {
    "GPU out-of-memory (CUDA OOM)": frozenset(
        ("cuda-oom", "cuda-oom-fragmented", "oom-first-optimizer-step", "oom-shared-gpu", "vllm-gpu-memory")
    ),
    "System out-of-memory (RAM)": frozenset(("host-memory-exhausted", "numpy-alloc", "cpu-alloc", "mmap-fail")),
    "Process killed by OS (OOM)": frozenset(("host-oom-kill", "k8s-oomkilled", "sigkill")),
    "CUDA runtime error": frozenset(("cuda-runtime", "ecc")),
    "NCCL communication error": frozenset(("collectives", "nccl-versions", "nccl-missing", "duplicate-gpu")),
    "NaN detected in loss": frozenset(("numerics-silent",)),
    "Tensor device mismatch": frozenset(("device-mismatch",)),
    "Segmentation fault": frozenset(("sigsegv", "dataloader-worker-killed")),
    "Permission denied": frozenset(("permission-denied",)),
    "File not found": frozenset(("file-not-found",)),
    "Assertion failed": frozenset(("user-exception",)),
    "Division by zero": frozenset(("user-exception",)),
    "": frozenset(("no-failure",)),
}
GENERIC = ("Python ", "Process exited with code")
# What is right where it names nothing: a log that does not tell its failure.
ABSTAINS = "unknown-failure"


class Case(NamedTuple):
    name: str
    source: Path
    accept: tuple[str, ...]


def main() -> int:
    options = _options()
    print(f"{'cases':<12}{'tool':<12}{'right':>8}{'none':>8}{'wrong':>8}{'of':>6}")
    for folder in options.cases:
        cases = list(cases_in(folder))
        theirs = Counter(map(their_verdict, cases, answers(options.gpualert_python, cases)))
        ours = Counter(map(our_verdict, cases))
        for tool, counts in (("firstfault", ours), ("gpualert", theirs)):
            row = "".join(f"{counts[each]:>8}" for each in ("right", "none", "wrong"))
            print(f"{folder.name:<12}{tool:<12}{row}{len(cases):>6}")
    return 0


def cases_in(folder: Path) -> Iterator[Case]:
    for path in sorted(folder.glob("*/expected.json")):
        source = path.parent / "log.txt"
        accept = json.loads(path.read_text(encoding="utf-8"))["accept"]
        yield Case(path.parent.name, source if source.exists() else path.parent / "logs", tuple(accept))


def answers(python: str, cases: list[Case]) -> list[str]:
    """The first line that it says of each case; nothing where it sees no failure."""
    asked = "".join(json.dumps([_text(case.source), int("no-failure" not in case.accept)]) + "\n" for case in cases)
    done = subprocess.run([python, "-c", ASK], input=asked, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def their_verdict(case: Case, said: str) -> str:
    if said.startswith(GENERIC) and "no-failure" not in case.accept:
        return "right" if ABSTAINS in case.accept else "none"
    return _graded(MEANS.get(said, frozenset()), case)


def our_verdict(case: Case) -> str:
    library = load()
    report = diagnose(logs.read(from_paths([str(case.source)]), library.prefixes), library)
    named = report.initiating.signature if report.initiating else "no-failure"
    if named == ABSTAINS and ABSTAINS not in case.accept:
        return "none"
    return "right" if named in case.accept else "wrong"


def _graded(meant: frozenset[str], case: Case) -> str:
    """Ours that it means by id or by category."""
    known = load().signatures
    covered = {*case.accept, *(known[each].category for each in case.accept if each in known)}
    return "right" if covered & meant else "wrong"


def _text(source: Path) -> str:
    files = [source] if source.is_file() else sorted(path for path in source.rglob("*") if path.is_file())
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpualert-python", required=True, help="the interpreter of an environment with gpualert")
    parser.add_argument("cases", nargs="+", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
