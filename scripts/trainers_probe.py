"""Runs inside an environment with one version of transformers: what its Trainer does to the gradient, class by class.

``trainers_probe.py`` asks about everything, ``trainers_probe.py --heads BertForMaskedLM`` about every case and
these classes, ``trainers_probe.py BertForMaskedLM causal-lm`` about what is named only. Prints one JSON object a line:
``{"head": name, "kinds": .., "auto": .., "mark": .., "why": ..}`` or ``{"case": name, "mark": .., "why": ..}``.

Every model is a tiny random one. A window of four micro-batches is trained for one step by the real Trainer, and the
gradient that the optimizer gets is compared with one that is computed without the Trainer. The marks:

    1  the gradient is that of the whole window, also where the micro-batches count different numbers of labels
    d  the same, and it is the Trainer that divides: the model takes no number of items
    m  the Trainer divides; where the micro-batches count different numbers, it is a mean of means
    k  as many times too large as there are micro-batches
    s  off by another factor or direction
    -  does not run here
"""

import contextlib
import importlib
import itertools
import json
import logging
import os
import resource
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TRANSFORMERS_VERBOSITY="critical")
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.optim.optimizer import register_optimizer_step_pre_hook  # noqa: E402

transformers: Any = importlib.import_module("transformers")  # of any release, so without its types

STEPS, ROWS, LENGTH, WORDS = 4, 2, 10, 99
SECONDS, MEMORY, LARGEST = 12, 8 << 30, 30_000_000
COUNTS = (3, 8, 2, 5)  # counted labels of each micro-batch's rows, where they differ
Batch = dict[str, torch.Tensor]
TASKS = {
    "AutoModelForCausalLM": "CAUSAL_LM",
    "AutoModelForMaskedLM": "MASKED_LM",
    "AutoModelForSeq2SeqLM": "SEQ_TO_SEQ_CAUSAL_LM",
    "AutoModelForSequenceClassification": "SEQUENCE_CLASSIFICATION",
    "AutoModelForTokenClassification": "TOKEN_CLASSIFICATION",
    "AutoModelForQuestionAnswering": "QUESTION_ANSWERING",
    "AutoModelForMultipleChoice": "MULTIPLE_CHOICE",
    "AutoModelForImageClassification": "IMAGE_CLASSIFICATION",
    "AutoModelForSemanticSegmentation": "SEMANTIC_SEGMENTATION",
    "AutoModelForAudioClassification": "AUDIO_CLASSIFICATION",
    "AutoModelForCTC": "CTC",
}
TOKEN_LEVEL = ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "TOKEN_CLASSIFICATION")
SMALL = {  # what the configurations call their sizes; only what a configuration has is set
    "hidden_size": 32, "d_model": 32, "dim": 32, "n_embd": 32, "emb_dim": 32, "embedding_size": 32,
    "word_embed_proj_dim": 32,
    "num_hidden_layers": 2, "num_layers": 2, "n_layer": 2, "n_layers": 2, "encoder_layers": 2, "decoder_layers": 2,
    "num_encoder_layers": 2, "num_decoder_layers": 2, "num_attention_heads": 4, "n_head": 4, "n_heads": 4,
    "num_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8,
    "intermediate_size": 48, "d_ff": 48, "ffn_dim": 48, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "hidden_dim": 48,
    "d_kv": 8, "d_head": 8, "d_inner": 48, "n_inner": 48, "vocab_size": WORDS, "max_position_embeddings": 64,
    "n_positions": 64, "n_ctx": 64, "image_size": 32, "patch_size": 8, "num_labels": 3, "num_experts": 2,
    "num_local_experts": 2, "n_routed_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 24, "type_vocab_size": 2, "encoder_hidden_size": 32, "rotary_dim": 4,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "sep_token_id": 2,
    "forced_bos_token_id": None, "forced_eos_token_id": None, "use_cache": False,
    "conv_dim": (16, 16), "conv_stride": (2, 2), "conv_kernel": (3, 3), "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2, "max_source_positions": 32, "num_mel_bins": 16,
    "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "dropout_rate": 0.0,
    "classifier_dropout": 0.0, "hidden_dropout": 0.0, "drop_path_rate": 0.0, "layerdrop": 0.0, "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0, "mask_time_prob": 0.0, "mask_feature_prob": 0.0, "apply_spec_augment": False,
    "router_jitter_noise": 0.0, "feat_proj_dropout": 0.0, "final_dropout": 0.0, "summary_first_dropout": 0.0,
    "seq_classif_dropout": 0.0, "residual_dropout": 0.0, "qa_dropout": 0.0, "pooler_dropout": 0.0,
    "classifier_dropout_prob": 0.0,
}  # fmt: skip


def main() -> None:
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _too_slow)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the models print
    with_cases = sys.argv[1:2] == ["--heads"]
    wanted = set(sys.argv[2 if with_cases else 1 :])
    for found in itertools.chain(_cases(set() if with_cases else wanted), _heads(wanted)):
        print(json.dumps(found), file=out, flush=True)


# ------------------------------------------------------------------------------------------------ the heads


def _heads(wanted: set[str]) -> Iterator[dict[str, str]]:
    modeling = importlib.import_module("transformers.models.auto.modeling_auto")
    configs = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING_NAMES
    seen: set[str] = set()
    for auto, task in TASKS.items():
        kinds: dict[str, list[str]] = {}
        for kind, names in getattr(modeling, f"MODEL_FOR_{task}_MAPPING_NAMES", {}).items():
            if kind in configs:
                kinds.setdefault(names if isinstance(names, str) else names[0], []).append(kind)
        for name, (kind, *others) in kinds.items():
            if name in seen or (wanted and name not in wanted):
                continue
            seen.add(name)
            mark, why = _guarded(lambda name=name, task=task, config=configs[kind]: _head(name, config, task))  # type: ignore[misc]
            yield {"head": name, "kinds": " ".join([kind, *others]), "auto": auto, "mark": mark, "why": why}


def _guarded(measure: Callable[[], str]) -> tuple[str, str]:
    signal.alarm(SECONDS)
    try:
        return measure(), ""
    except BaseException as error:  # a model may fail in any way; that is an answer too
        if isinstance(error, KeyboardInterrupt):
            raise
        return "-", f"{type(error).__name__}: {error}"[:160]
    finally:
        signal.alarm(0)


def _too_slow(*_: object) -> None:
    raise TimeoutError("slow")


def _head(name: str, config_name: str, task: str) -> str:
    config = _small(getattr(transformers, config_name)())
    if task == "QUESTION_ANSWERING":
        config.num_labels = 2
    cls = getattr(transformers, name)
    with torch.device("meta"):
        size = sum(each.numel() for each in cls(config).parameters())
    if size > LARGEST:
        raise ValueError(f"{size} parameters")
    torch.manual_seed(0)
    model = _still(cls(config))
    same = [_rows(task, config, LENGTH - 2)] * STEPS
    scale = _against(model, same, _by_trainer(model, same))
    if scale != "1":
        return scale
    right = "1" if model.__dict__.pop("takes_items") else "d"
    if task not in TOKEN_LEVEL:
        return right
    varied = [_rows(task, config, count) for count in COUNTS]
    if _against(model, varied, _by_trainer(model, varied)) == "1":
        return right
    return "m" if right == "d" else "s"


def _small(config: Any) -> Any:
    for key, value in SMALL.items():
        if hasattr(config, key) or key in _ALWAYS:
            with contextlib.suppress(Exception):
                setattr(config, key, value)
    for key, value in list(vars(config).items()):
        if isinstance(value, transformers.PretrainedConfig):
            setattr(config, key, _small(value))
        elif key == "layer_types" and isinstance(value, list):
            setattr(config, key, value[:2])
    with contextlib.suppress(Exception):
        config._attn_implementation = "eager"
    return config


_ALWAYS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")


def _still(model: torch.nn.Module) -> torch.nn.Module:
    for module in model.modules():
        for key in ("p", "drop_prob", "dropout_prob"):
            if isinstance(getattr(module, key, None), float) and "rop" in type(module).__name__:
                setattr(module, key, 0.0)
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
    return model


def _rows(task: str, config: Any, counted: int) -> Batch:
    """Two equal rows: whatever looks at the batch sees the same in a micro-batch as in the window."""
    torch.manual_seed(counted)
    words = torch.randint(3, WORDS - 1, (1, LENGTH)).repeat(ROWS, 1)
    if "IMAGE" in task or "SEGMENTATION" in task:
        size = getattr(config, "image_size", 32)
        size = size if isinstance(size, int) else size[0]
        pixels = torch.randn(1, getattr(config, "num_channels", 3), size, size).repeat(ROWS, 1, 1, 1)
        labels = torch.ones(ROWS, dtype=torch.long)
        return {
            "pixel_values": pixels,
            "labels": labels.view(-1, 1, 1).repeat(1, size, size) if "SEG" in task else labels,
        }
    if task in ("AUDIO_CLASSIFICATION", "CTC"):
        labels = torch.ones(ROWS, dtype=torch.long) if task != "CTC" else torch.tensor([[3, 4, 5]]).repeat(ROWS, 1)
        return {"input_values": torch.randn(1, 400).repeat(ROWS, 1), "labels": labels}
    batch: Batch = {"input_ids": words, "attention_mask": torch.ones_like(words)}
    if task == "MULTIPLE_CHOICE":
        return {
            **{key: each[:, None].repeat(1, 2, 1) for key, each in batch.items()},
            "labels": torch.ones(ROWS).long(),
        }
    if task == "QUESTION_ANSWERING":
        return {**batch, "start_positions": torch.full((ROWS,), 2), "end_positions": torch.full((ROWS,), 5)}
    if task == "SEQUENCE_CLASSIFICATION":
        words[:, -1] = getattr(config, "eos_token_id", 2) or 2  # some heads read the end of the text
        return {**batch, "labels": torch.ones(ROWS, dtype=torch.long)}
    labels = words.clone() % 3 if task == "TOKEN_CLASSIFICATION" else words.clone()
    labels[:, 0] = -100  # whether it is counted depends on the version, and is a case of its own
    labels[:, 1 + counted :] = -100
    return {**batch, "labels": labels}


# ------------------------------------------------------------------------------------------------ the measuring


def _against(model: torch.nn.Module, batches: list[Batch], got: torch.Tensor) -> str:
    """The mark of a gradient, from the model's own mean loss of each micro-batch and the labels that it counts."""
    model.zero_grad()
    model.train()
    counts = [float((each["labels"] != -100).sum()) if "labels" in each else 1.0 for each in batches]
    for batch, count in zip(batches, counts, strict=True):
        (_loss(model(**batch)) * count / sum(counts)).backward()
    return _mark(got, _gradient(model))


def _loss(output: Any) -> torch.Tensor:
    loss: torch.Tensor = output["loss"] if isinstance(output, dict) or hasattr(output, "keys") else output[0]
    return loss


def _mark(got: torch.Tensor, wanted: torch.Tensor) -> str:
    norm = wanted.norm()
    if not norm > 0 or not bool(torch.isfinite(got).all()):
        raise ValueError("no gradient")
    for factor, mark in ((1.0, "1"), (float(STEPS), "k")):
        if (got - factor * wanted).norm() < 1e-3 * factor * norm:
            return mark
    return "s"


def _gradient(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([
        (each.grad if each.grad is not None else torch.zeros_like(each)).flatten() for each in model.parameters()
    ])  # fmt: skip


def _by_trainer(
    model: torch.nn.Module,
    batches: list[Batch],
    kind: type | None = None,
    given: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
) -> torch.Tensor:
    rows = [{key: value[at] for key, value in batch.items()} for batch in batches for at in range(ROWS)]
    caught: list[torch.Tensor] = []
    hook = register_optimizer_step_pre_hook(lambda *_: caught.append(_gradient(model)))
    try:
        with tempfile.TemporaryDirectory() as folder:
            arguments = transformers.TrainingArguments(
                output_dir=folder, per_device_train_batch_size=ROWS, gradient_accumulation_steps=STEPS, max_steps=1,
                learning_rate=0.0, max_grad_norm=0.0, optim="sgd", use_cpu=True, report_to=[], save_strategy="no",
                logging_strategy="no", disable_tqdm=True, remove_unused_columns=False, dataloader_pin_memory=False,
                **(options or {}),
            )  # fmt: skip
            trainer = (kind or transformers.Trainer)(
                model=model, args=arguments, train_dataset=rows, data_collator=_stacked, **(given or {})
            )
            trainer._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(rows)
            trainer.train()
            model.__dict__["takes_items"] = getattr(trainer, "model_accepts_loss_kwargs", False)
    finally:
        hook.remove()
    (gradient,) = caught
    return gradient


def _stacked(rows: list[Batch]) -> Batch:
    return {key: torch.stack([each[key] for each in rows]) for key in rows[0]}


# ------------------------------------------------------------------------------------------------ the cases


def _cases(wanted: set[str]) -> Iterator[dict[str, str]]:
    for name, measure in _CASES.items():
        if not wanted or name in wanted:
            mark, why = _guarded(measure)
            yield {"case": name, "mark": mark, "why": why}


def _causal() -> torch.nn.Module:
    torch.manual_seed(0)
    config = _small(transformers.LlamaConfig(tie_word_embeddings=False))
    return _still(transformers.LlamaForCausalLM(config))


def _bert() -> torch.nn.Module:
    torch.manual_seed(0)
    return _still(transformers.BertForMaskedLM(_small(transformers.BertConfig())))


def _judged(kind: type | None = None, given: dict[str, Any] | None = None, model: Any = None, **options: Any) -> str:
    """A case on micro-batches that count equal numbers, and where that is right, on others."""
    model = model or _causal()
    mark = ""
    for counts in ((LENGTH - 2,) * STEPS, COUNTS):
        batches = [_rows("CAUSAL_LM", None, count) for count in counts]
        found = _against(model, batches, _by_trainer(model, batches, kind, given, options))
        if found != "1":
            return "m" if mark else found
        mark = found
    return mark


class _NoKeywords(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """A model whose forward has no ``**kwargs``."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.scores = torch.nn.Embedding(WORDS, 16), torch.nn.Linear(16, WORDS)

    def forward(self, input_ids: Any, attention_mask: Any = None, labels: Any = None) -> dict[str, torch.Tensor]:
        scores = self.scores(self.words(input_ids))
        return {"loss": F.cross_entropy(scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten()), "logits": scores}


class _Mean(transformers.Trainer):  # type: ignore[misc]
    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        output = model(**inputs)
        return (output["loss"], output) if return_outputs else output["loss"]


class _MeanSuper(transformers.Trainer):  # type: ignore[misc]
    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        return super().compute_loss(model, inputs, return_outputs=return_outputs)


class _MeanFlagged(_Mean):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = False


class _Unaware(transformers.Trainer):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = False


class _MeanScaled(_Mean):
    loss_is_scaled_for_ga = False


class _Summed(transformers.Trainer):  # type: ignore[misc]
    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        output = model(**inputs)
        total = _shifted(output["logits"], inputs["labels"], "sum") / num_items_in_batch
        return (total, output) if return_outputs else total


class _Bare(transformers.Trainer):  # type: ignore[misc]
    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False) -> Any:
        output = model(**inputs)
        return (output["loss"], output) if return_outputs else output["loss"]


def _shifted(scores: torch.Tensor, labels: torch.Tensor, reduction: str) -> torch.Tensor:
    return F.cross_entropy(scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction=reduction)


def _mean_function(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> torch.Tensor:
    return _shifted(outputs["logits"], labels, "mean")


def _sum_function(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> torch.Tensor:
    return _shifted(outputs["logits"], labels, "sum") / num_items_in_batch


def _unshifted_sum(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> torch.Tensor:
    return F.cross_entropy(outputs["logits"].flatten(0, 1), labels.flatten(), reduction="sum") / num_items_in_batch


def _smoothing() -> str:
    """Label smoothing, against the same Trainer on the whole window as one batch: only the scale is compared."""
    model, batch = _causal(), _rows("CAUSAL_LM", None, LENGTH - 2)
    got = _by_trainer(model, [batch] * STEPS, None, None, {"label_smoothing_factor": 0.1})
    smoother = importlib.import_module("transformers.trainer_pt_utils").LabelSmoother(epsilon=0.1)
    model.zero_grad()
    labels = batch["labels"]
    output = model(**{key: value for key, value in batch.items() if key != "labels"})
    smoother(output, labels, shift_labels=True).backward()
    return _mark(got, _gradient(model))


def _first_label() -> str:
    """The first label is counted although a causal model has nothing to predict it from."""
    model = _causal()
    batches = [_rows("CAUSAL_LM", None, LENGTH - 2) for _ in range(STEPS)]
    for batch in batches:
        batch["labels"][:, 0] = batch["input_ids"][:, 0]
    got = _by_trainer(model, batches)
    model.zero_grad()
    for batch in batches:
        (_loss(model(**batch)) / STEPS).backward()
    return _mark(got, _gradient(model))


_CASES: dict[str, Callable[[], str]] = {
    "causal-lm": _judged,
    "causal-lm-first-label": _first_label,
    "model-without-kwargs": lambda: _judged(model=_NoKeywords()),
    "compute-loss-mean": lambda: _judged(_Mean),
    "compute-loss-mean-without-kwargs": lambda: _judged(_Mean, model=_NoKeywords()),
    "compute-loss-super-without-items": lambda: _judged(_MeanSuper),
    "compute-loss-mean-accepts-false": lambda: _judged(_MeanFlagged),
    "compute-loss-mean-scaled-false": lambda: _judged(_MeanScaled),
    "compute-loss-sum": lambda: _judged(_Summed),
    "compute-loss-without-parameter": lambda: _judged(_Bare),
    "loss-func-mean": lambda: _judged(given={"compute_loss_func": _mean_function}),
    "loss-func-sum": lambda: _judged(given={"compute_loss_func": _sum_function}),
    "label-smoothing": _smoothing,
    "head-accepts-false": lambda: _judged(_Unaware, model=_bert()),
    "head-loss-func-sum": lambda: _judged(given={"compute_loss_func": _unshifted_sum}, model=_bert()),
}

if __name__ == "__main__":
    main()
