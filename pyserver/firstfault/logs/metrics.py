"""Lines of metrics as values: step, epoch, losses, gradient norm, loss scale and learning rate of any trainer.

Trainers print ``name value`` pairs in many forms (``step 100 loss 2.31``, ``loss=2.31`` behind a bar, dictionaries,
JSON, ``lm loss: 2.1E+00 |``), and some print columns below a header. A name is read by its words, so that a logger that
nobody has seen is read too. What a line does not tell is None.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from firstfault.logs.log import Line

# Every line of metrics holds one of them: the quick test before the patterns.
MARKS = ("oss", "OSS", "norm", "cale")
NUMBER = r"[-+]?(?:\d{1,18}(?:\.\d{0,24})?(?:[eE][-+]?\d{1,4})?|\.\d{1,24}|nan|NaN|NAN|inf|Inf|INF)(?!\w|\.\d|%)"
PAIR = re.compile(
    r"(?P<key>(?:(?<![A-Za-z])[A-Za-z]\w{0,15}[ ])?[A-Za-z][\w/.\-]{0,60})[\"'\])}]{0,2}"
    rf"(?:\s{{0,4}}[:=|]\s{{0,12}}|\s{{1,12}})[\"'\[(]{{0,2}}(?:tensor\()?(?P<value>{NUMBER})"
)
# A count of an epoch's or a run's steps: ``[1][100/3125]``, ``(100/24681)``, ``412/1000 [05:55<08:20``, ``100 / 5000``.
COUNT = re.compile(r"(?<![\d/.:])(\d{1,9}) ?/ {0,6}(\d{1,9})(?![\d/.])")
EPOCH_ALONE = re.compile(r"^\W{0,12}[Ee]poch\W{0,4}(\d{1,7})(?:\W{1,3}\d{1,7})?\W{0,12}$")
COUNT_IN_BARS = re.compile(r"^\d{1,6}\|(\d{1,9})\|")
EPOCH_IN_BRACKETS = re.compile(r"\[(\d{1,7})\] ?\[ {0,8}\d")
OVERFLOW = re.compile(
    r"(?:OVERFLOW!|[Gg]radient overflow|[Ss]kipping step)[^\n]{0,60}?"
    r"(?:[Rr]educing (?:loss scale )?to (?P<to>[\d.eE+-]{1,20})|[Aa]ttempted loss scale: (?P<at>[\d.eE+-]{1,20}))"
)
REDUCED = re.compile(r"reducing to (?P<to>[\d.eE+-]{1,20})")
SPLIT = re.compile(r"[\s_/.\-]+")
CELLS = re.compile(r"\t| {2,}| ?\| ?")
BAR = re.compile(r"\d{1,3}%\||it/s|s/it")
CELL_NUMBER = re.compile(rf"(?:{NUMBER})|\d{{1,9}}/\d{{1,9}}")

EVALUATION = frozenset(("val", "valid", "validation", "eval", "evaluation", "test", "dev"))
# A minimum, a limit or a weight is no loss of a step.
NO_STEP = frozenset(
    (
        "best",
        "min",
        "lowest",
        "target",
        "threshold",
        "weight",
        "prev",
        "previous",
        "old",
        "last",
        "max",
        "is",
        "was",
        "became",
    )
)
# Names of games and of reinforcement learning, alone or of a loss: the level of such a loss says nothing.
GAME = frozenset(
    ("reward", "rewards", "kl", "entropy", "advantage", "advantages", "policy", "critic", "ppo", "discriminator", "gan")
)
GAME_LOSS = frozenset(("d", "g", "disc", "gen", "generator", "adv", "adversarial", "actor", "pg", "value", "vf", "q"))
STEPS = frozenset(("step", "steps", "iter", "iters", "iteration", "it", "batch", "update", "updates"))
# Of two counts on a line these are the run's own.
OF_RUN = (("global", "step"), ("num", "updates"))
MAIN = ("loss", "train loss", "training loss", "lm loss", "total loss", "train total loss", "loss total",
        "reduced train loss", "train loss step", "loss step")  # fmt: skip


class Reading(NamedTuple):
    """What one line tells. ``losses`` holds those of training by name, ``skipped`` a step that an overflow cost."""

    line: Line
    step: int | None
    epoch: float | None
    losses: dict[str, float]
    eval_loss: float | None
    grad_norm: float | None
    scale: float | None
    rate: float | None
    skipped: bool
    game: bool
    bar: bool


def readings(lines: Iterable[Line]) -> Iterator[Reading]:
    """The readings of one writer's lines, in order. A header names the columns below it, and may name the epoch."""
    header: list[str] = []
    epoch: float | None = None
    for line in lines:
        text = line.text if any(mark in line.text for mark in MARKS) else line.raw
        found = None
        if any(mark in text for mark in MARKS):
            header = _header(text) or header
            found = read_line(line, text)
        elif header:
            found = _row(line, header)
        if found is None:
            epoch = _epoch_of(line.text) or epoch
            continue
        yield found if found.epoch is not None else found._replace(epoch=epoch)


def _epoch_of(text: str) -> float | None:
    """``Epoch 3/10`` alone on a line, as Keras and many loops print it."""
    alone = EPOCH_ALONE.match(text) if "poch" in text else None
    return float(alone[1]) if alone else None


def read_line(line: Line, text: str) -> Reading | None:
    overflow = OVERFLOW.search(text)
    if overflow is not None:
        return _skipped(line, text, overflow)
    pairs = [(_words(each["key"]), _number(each["value"])) for each in PAIR.finditer(text)]
    found = _reading(line, pairs, text)
    told = found.losses or any(each is not None for each in (found.eval_loss, found.grad_norm, found.scale))
    return found if told else None


def _skipped(line: Line, text: str, overflow: re.Match[str]) -> Reading:
    reduced = REDUCED.search(text, overflow.start())
    scale = reduced["to"] if reduced else overflow["to"] or overflow["at"]
    return _reading(line, [], "")._replace(scale=_number(scale.rstrip(".")), skipped=True)


def _reading(line: Line, pairs: list[tuple[tuple[str, ...], float]], text: str) -> Reading:
    losses: dict[str, float] = {}
    values: dict[str, float] = {}
    game = False
    for words, value in pairs:
        kind = kind_of(words)
        game = game or bool(GAME.intersection(words)) or ("loss" in words and bool(GAME_LOSS.intersection(words)))
        if kind == "loss":
            losses.setdefault(" ".join(words), value)
        elif words[-2:] in OF_RUN:
            values["step"] = value
        elif kind and (kind != "step" or value.is_integer()):
            values.setdefault(kind, value)
    epoch = values.get("epoch")
    if epoch is None and (bracket := EPOCH_IN_BRACKETS.search(text)):
        epoch = float(bracket[1])
    step = values.get("step")
    return Reading(
        line, _whole(step) if step is not None else _counted(text, epoch), epoch, losses, values.get("eval"),
        values.get("norm"), values.get("scale"), values.get("rate"), False, game, bool(BAR.search(text)),
    )  # fmt: skip


def _counted(text: str, epoch: float | None) -> int | None:
    """The step of a count; a single count may be that of the epochs, and a full one stands at each epoch's end."""
    counts = COUNT.findall(text) or [(each, "") for each in COUNT_IN_BARS.findall(text)]
    if not counts or (len(counts) == 1 and int(counts[0][0]) == epoch) or counts[-1][0] == counts[-1][1]:
        return None
    return int(counts[-1][0])


def kind_of(words: tuple[str, ...]) -> str:
    """Which quantity a name means, by its words; empty for one that is not read."""
    last = words[-1]
    if last in ("scale", "scaler") and {"loss", "grad", "scaler", "amp"}.intersection(words):
        return "scale"
    if last in ("gnorm", "gradnorm") or (last in ("norm", "norms") and {"grad", "gradient", "gradients"} & {*words}):
        return "norm"
    if last == "lr" or words[0] == "lr" or words[-2:] == ("learning", "rate"):
        return "rate"
    if last in ("epoch", "ep", "epochs"):
        return "epoch"
    if last in STEPS:
        return "step"
    if "loss" not in words or "scaler" in words or NO_STEP.intersection(words):
        return ""
    return "eval" if EVALUATION.intersection(words) else "loss"


def _words(key: str) -> tuple[str, ...]:
    """``train/loss_epoch`` -> train, loss. A level of a logger in front of the name is no part of it."""
    words = [each.lower() for each in SPLIT.split(key) if each]
    if len(words) > 1 and words[0] in ("info", "debug", "rank", "the", "mean", "avg", "average", "ave", "running"):
        words = words[1:]
    if len(words) > 1 and words[-1] in ("epoch", "step", "mean", "avg") and "loss" in words:
        words = words[:-1]
    return tuple(words) or ("",)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _whole(value: float) -> int | None:
    return int(value) if abs(value) < 1e15 else None


# ------------------------------------------------------------------------------------------ columns


def _header(text: str) -> list[str]:
    """The names of columns, where the line holds only names and one of them is a loss."""
    if any(each.isdigit() for each in text.replace("mAP50-95", "").replace("mAP50", "")):
        return []
    cells = [each.strip() for each in CELLS.split(text.strip(" |")) if each.strip()]
    named = [kind_of(_words(each)) for each in cells]
    return cells if len(cells) > 1 and "loss" in named and len(text) < 400 else []


def _row(line: Line, header: list[str]) -> Reading | None:
    cells = [each.strip() for each in CELLS.split(line.text.strip(" |")) if each.strip()]
    if len(cells) < len(header) or not CELL_NUMBER.fullmatch(cells[0]):
        return None
    pairs = []
    for name, cell in zip(header, cells, strict=False):
        found = re.match(NUMBER, cell) or re.match(r"\d{1,9}(?=/)", cell)
        if found:
            pairs.append((_words(name), _number(found[0])))
    reading = _reading(line, pairs, "")
    return reading if reading.losses or reading.eval_loss is not None else None
