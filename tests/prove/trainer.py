"""A language model with random weights, and lengths that differ, for the Trainer of transformers: nothing is loaded."""

import tempfile
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

LENGTHS = [2, 9, 3, 8, 12, 2, 4, 12, 7, 3, 2, 11, 5, 5, 12, 3, 9, 2, 2, 6, 12, 8, 3, 3, 4, 10, 2, 7, 12, 2, 5, 9]


def sentences(lengths: list[int] = LENGTHS) -> list[dict[str, torch.Tensor]]:
    torch.manual_seed(1)
    found = []
    for length in lengths:
        ids = torch.randint(0, 30, (12,))
        labels = torch.where(torch.arange(12) < length, ids, -100)
        labels[0] = -100  # nothing predicts the first token
        found.append({"input_ids": ids, "attention_mask": torch.ones(12, dtype=torch.long), "labels": labels})
    return found


def trainer(kind: type[Trainer] = Trainer, lengths: list[int] = LENGTHS, **named: Any) -> Trainer:
    arguments = TrainingArguments(
        tempfile.mkdtemp(),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        max_steps=3,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    given = {"model": _model(), "train_dataset": sentences(lengths), **named}
    return kind(args=arguments, **given)


def _model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=30, max_position_embeddings=16, **size))
