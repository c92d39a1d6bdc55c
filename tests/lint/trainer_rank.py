"""One of two ranks of torchrun: the fixed scripts of proofs/trainer-fixes.md that claim to be exact, each in turn.

Rank 0 prints for each the relative error of its gradient against that of all rows of both ranks.
"""

import os

import test_trainer_fixes as proofs
import torch


def main() -> None:
    torch.set_num_threads(1)
    proofs.PLAIN["ddp_backend"] = "gloo"
    for case in proofs.CASES:
        code, number, claim = proofs.what(case)
        if claim == "exact":
            error = proofs.error(proofs.fixed(case.source, code, number), (3, 9, 2, 6, 1, 8, 4, 5))
            if os.environ["RANK"] == "0":
                print(f"{error:.3e}", case.heading, flush=True)


if __name__ == "__main__":
    main()
