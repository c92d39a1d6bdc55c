"""Records the golden logs of this folder anew: ``python tests/cases/record.py [NAME ...]``.

Each case is a real torchrun of ``job.py`` with one fault in one rank. Paths of the machine are replaced; nothing else
is touched. What the answer must be stands in ``expected.toml``, written by hand from the injected fault.
"""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CASES = {
    "value-rank2": ("value", 2, 4, []),
    "chain-rank1-tee": ("chain", 1, 3, ["--tee", "3"]),
    "key-rank1": ("key", 1, 2, []),
    "worker-key-rank0-tee": ("worker-key", 0, 2, ["--tee", "3"]),
    "shape-rank2": ("shape", 2, 3, []),
    "unused-all": ("unused", -1, 2, []),
    "variable-all": ("variable", -1, 3, []),
    "sigkill-rank1": ("sigkill", 1, 3, []),
    "segfault-rank2": ("segfault", 2, 3, []),
    "hang-rank1": ("hang", 1, 3, []),
    "leave-rank2": ("leave", 2, 3, []),
    "exit-code-rank1": ("exit-code", 1, 3, []),
    "handled-rank1": ("handled", 1, 2, []),
    "healthy": ("none", -1, 2, []),
}


def main() -> None:
    for name in sys.argv[1:] or CASES:
        fault, culprit, ranks, options = CASES[name]
        command = [str(Path(sys.executable).parent / "torchrun"), "--standalone", f"--nproc-per-node={ranks}", *options]
        done = subprocess.run(
            [*command, str(HERE / "job.py"), fault, str(culprit)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        (HERE / f"{name}.log").write_text(scrubbed(done.stdout.decode("utf-8", "replace")), encoding="utf-8")
        print(name, done.returncode)


def scrubbed(text: str) -> str:
    text = text.replace(str(HERE), "/home/ann/sensors").replace(
        str(Path(sys.executable).parent.parent), "/home/ann/env"
    )
    text = re.sub(r"/[\w/.-]*/lib/(python3\.\d+)/(?!site-packages)", r"/usr/lib/\1/", text)
    text = re.sub(r"/tmp/torchelastic_\w+", "/home/ann/tmp/torchelastic", text)
    return re.sub(r"(?<=host      : ).+", "node-1", text)


if __name__ == "__main__":
    main()
