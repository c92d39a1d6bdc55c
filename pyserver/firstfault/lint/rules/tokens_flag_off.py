"""A trainer that weighs micro-batches by their rows is given labels that are partly ignored, and its flag for tokens is
off.

## What it does

Finds `composer.Trainer` with `device_train_microbatch_size` and without `accumulate_train_batch_on_tokens=True`, in
scripts that show that labels are masked or padded with the value that the loss ignores.

## Why it matters

Composer weighs the mean loss of each micro-batch by its number of rows. Over micro-batches whose rows count different
numbers of tokens that is a mean of means: a token weighs more, the fewer of them its micro-batch holds. With the
flag, and a data spec that counts the tokens that generate loss, the weights are those of the tokens, and the gradient
is that of the whole batch.

## Example

```python
import torch
from composer import Trainer


def collate(rows):
    labels = torch.stack([row["ids"] for row in rows])
    labels[labels == 0] = -100
    return {"input_ids": torch.stack([row["ids"] for row in rows]), "labels": labels}


def main(model, data):
    loader = torch.utils.data.DataLoader(data, batch_size=64, collate_fn=collate)
    trainer = Trainer(model=model, train_dataloader=loader, device_train_microbatch_size=4)
    trainer.fit()
```

## Use instead

```python
import torch
from composer import Trainer


def collate(rows):
    labels = torch.stack([row["ids"] for row in rows])
    labels[labels == 0] = -100
    return {"input_ids": torch.stack([row["ids"] for row in rows]), "labels": labels}


def main(model, data):
    loader = torch.utils.data.DataLoader(data, batch_size=64, collate_fn=collate)
    trainer = Trainer(
        model=model,
        train_dataloader=loader,
        device_train_microbatch_size=4,
        accumulate_train_batch_on_tokens=True,
    )
    trainer.fit()
```

## Fix safety

The fix sets the flag. It is partial: the data spec must also implement `get_num_tokens_in_batch`, and return the
number of `loss_generating` tokens, or all tokens are counted, padding included.

## Limits

Only composer's `Trainer` in Python is read, as of its release 0.32: no settings files, and not the flags of Megatron
(`calculate_per_token_loss`) and NeMo, which stand on command lines. Where nothing in the script or its modules shows
that labels are ignored, nothing is said.

## References

- composer pull requests 3273, 3677; Megatron-LM issue 936.
"""

from collections.abc import Iterator

from firstfault.lint.bindings import keyword
from firstfault.lint.ignored_labels import Ignored, Proof, proof_of_ignored
from firstfault.lint.items_fix import argument_edit
from firstfault.lint.rule import Fix, Hit, Related, rule
from firstfault.lint.script import Script
from firstfault.lint.workspace import Workspace

_TRAINERS = ("composer.Trainer", "composer.trainer.Trainer", "composer.trainer.trainer.Trainer")
_FLAG = "accumulate_train_batch_on_tokens"


@rule("GA406")
def tokens_flag_off(script: Script, workspace: Workspace) -> Iterator[Hit]:
    for call in script.calls("Trainer") if "device_train_microbatch_size" in script.source else ():
        if script.qualified(call.func) not in _TRAINERS or any(each.arg is None for each in call.keywords):
            continue
        if keyword(call, "device_train_microbatch_size") is None or keyword(call, _FLAG) is not None:
            continue
        proof = _proof(script, workspace)
        if proof is not None:
            edit = argument_edit(script, call, f"{_FLAG}=True")
            fixes = (Fix("Weigh micro-batches by their tokens", "partial", (edit,)),) if edit else ()
            yield Hit(script.span(call.func), "warning", _MESSAGE, (_related(proof),), fixes)


_MESSAGE = (
    "This Trainer weighs micro-batches by their rows, and the labels are partly ignored: a token weighs more the fewer "
    f"of them its micro-batch holds, unless `{_FLAG}=True`."
)


def _proof(script: Script, workspace: Workspace) -> Proof | None:
    ignored = Ignored(None, script, frozenset({"labels", "label", "targets"}), by_name_only=False)
    return proof_of_ignored([script, *workspace.siblings(script)], ignored, workspace)


def _related(proof: Proof) -> Related:
    return Related(proof.script.path, proof.script.line(proof.node), "this makes the number of counted tokens vary")
