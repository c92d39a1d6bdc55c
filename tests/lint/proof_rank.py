"""One rank of a proof: runs scripts in turn and prints the errors of their windows. Started by the tests."""

import json
import sys
from pathlib import Path

import torch
from proof import errors, run


def main() -> None:
    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    found = []
    for number, (source, lengths) in enumerate(json.loads((folder / "jobs.json").read_text(encoding="utf-8"))):
        given = {"RANK": rank, "MEETING": (folder / f"meeting{number}").as_uri()}
        found.append(errors(*run(source, lengths, {}, given)))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
