"""One rank of a proof: runs scripts in turn and prints the errors of their windows. Started by the tests."""

import json
import os
import sys
from pathlib import Path

import torch
from proof import errors, run


def main() -> None:
    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    given = {"RANK": rank, "MEETING": (folder / "meeting").as_uri()}
    jobs = json.loads((folder / "jobs.json").read_text(encoding="utf-8"))
    print(json.dumps([errors(*run(source, lengths, {}, given)) for source, lengths in jobs]), flush=True)
    torch.distributed.barrier()  # a rank that leaves early closes connections that the other still reads
    os._exit(0)


if __name__ == "__main__":
    main()
