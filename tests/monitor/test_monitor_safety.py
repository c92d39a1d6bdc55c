"""The monitor changes nothing, leaves nothing behind, and never raises into training."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules import module as modules
from torch.optim import lr_scheduler, swa_utils
from torch.optim import optimizer as optimizers
from torch.utils.checkpoint import checkpoint
from torch.utils.data import dataloader

from firstfault.monitor import monitor, watching
from firstfault.prove import record
from firstfault.prove.probes import token_weights
from firstfault.prove.probes.boundaries import scaler_classes
from monitor.training import Logged, batch, mean, over_all, tagger, train

torch.set_num_threads(1)
SIZES = [[3, 9], [2, 5]] * 3
OWNERS: list[Any] = [
    torch,
    functional,
    torch.autograd,
    *scaler_classes(),
    torch.nn.utils,
    torch.nn.utils.clip_grad,
    torch.optim.Optimizer,
    nn.Module,
    nn.parallel.DistributedDataParallel,
    swa_utils.AveragedModel,
    dataloader.DataLoader,
    dataloader._BaseDataLoaderIter,
    *(each for each in vars(lr_scheduler).values() if isinstance(each, type)),
]


def state() -> list[Any]:
    hooks = [*vars(modules).items(), *vars(optimizers).items()]
    found = [(name, dict(value)) for name, value in hooks if name.startswith("_global") and value is not None]
    return [*found, *({name: id(value) for name, value in vars(owner).items()} for owner in OWNERS)]


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [each.detach().clone() for each in model.parameters()]


def test_torch_is_as_it_was() -> None:
    model = tagger(nn.BatchNorm1d(8))
    train(model, SIZES)  # what torch itself remembers from a first training
    before = state()
    with monitor(model, every=2):
        assert state() != before
        train(model, SIZES)
    assert state() == before
    with pytest.raises(ZeroDivisionError), monitor(model):
        train(model, SIZES, before_step=lambda: 1 // 0)
    assert state() == before


@pytest.mark.parametrize("every", [1, 3])
def test_the_weights_are_the_same_with_it_and_without(every: int) -> None:
    plain, watched = tagger(nn.BatchNorm1d(8)), tagger(nn.BatchNorm1d(8))
    train(plain, SIZES)
    with monitor(watched, every=every):
        train(watched, SIZES)
    assert all(map(torch.equal, weights(plain), weights(watched)))


@pytest.mark.parametrize("losses", [mean, over_all])
def test_numbers_are_read_once_for_all_micro_batches(losses: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading waits for the GPU, where there is one."""
    reads: list[str] = []
    for name in ("item", "tolist", "__bool__", "__float__", "__int__", "__index__", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, _counted(reads, name, getattr(torch.Tensor, name)))

    def reads_of(micro_batches: int) -> list[str]:
        model = tagger(nn.BatchNorm1d(8))
        reads.clear()
        with monitor(model, every=1):
            train(model, [[20] * micro_batches] * 3, losses)
        return list(reads)

    assert reads_of(2) == reads_of(8) == ["tolist"] * 2 * 3, "one for BatchNorm, one for the rest"


def _counted(reads: list[str], name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def read(*arguments: Any, **named: Any) -> Any:
        reads.append(name)
        return original(*arguments, **named)

    return read


def test_one_within_another_measures_nothing() -> None:
    model, inner, outer = tagger(), Logged(), Logged()
    before = state()
    with monitor(model, every=1, log=outer):
        with monitor(model, every=1, log=inner) as second:
            train(model, SIZES)
        train(model, SIZES)
    assert not inner.calls and len(outer.calls) == 2 * len(SIZES)
    assert second.warnings == ["a monitor is on already; this one measures nothing"]
    assert state() == before


def test_the_same_one_again() -> None:
    model, log = tagger(), Logged()
    one = monitor(model, every=1, log=log)
    with one, one:
        train(model, SIZES)
    with one:
        train(model, SIZES)
    assert log.all("steps") == [1, 2, 3, 4, 5, 6] * 2
    train(model, SIZES)
    assert len(log.calls) == 12


def failing(*_: Any, **__: Any) -> Any:
    raise LookupError("it broke")


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (watching, "values_of"),
        (watching, "install_all"),
        (token_weights, "_weights"),
        (watching.Sampled, "_count"),
        (watching.Sampled, "_finish_backward"),
        (watching.Alerts, "look"),
        (watching.Epochs, "_begin"),
        (watching.Epochs, "run_ended"),
    ],
)
def test_a_fault_of_ours_is_said_once(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = state()
    plain, watched = tagger(), tagger()
    train(plain, SIZES)
    monkeypatch.setattr(owner, name, failing)
    with monitor(watched, every=1) as seen:
        list(dataloader.DataLoader([1]))
        train(watched, SIZES, over_all if name == "look" else mean)
    monkeypatch.undo()
    assert len([each for each in seen.warnings if "it broke" in each]) == 1
    assert seen.warnings[-1].startswith("the monitor is off: ")
    if name != "look":
        assert all(map(torch.equal, weights(plain), weights(watched)))
    assert state() == before


def test_a_log_that_fails_gets_no_more(tmp_path: Path) -> None:
    model, writer = tagger(), Writer()
    with monitor(model, every=1, log=failing, tensorboard=writer, prometheus=tmp_path / "no" / "run.prom") as seen:
        train(model, SIZES, over_all)
    assert sorted(each.partition("(")[2][:11] for each in seen.warnings) == ["FileNotFoun", "LookupError"]
    assert [step for tag, _, step in writer.scalars if tag == "firstfault/mass"] == [1, 2, 3, 4, 5, 6]


class Writer:
    """What is used of torch.utils.tensorboard.SummaryWriter."""

    def __init__(self) -> None:
        self.scalars: list[tuple[str, float, int]] = []

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.scalars.append((tag, value, step))


def test_prometheus_reads_a_whole_file(tmp_path: Path) -> None:
    model, path = tagger(), tmp_path / "run.prom"
    with monitor(model, every=1, prometheus=path):
        train(model, [[10, 90]] * 2)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert "firstfault_steps_total 2.0" in lines and "# TYPE firstfault_steps_total counter" in lines
    assert "# TYPE firstfault_weight_ratio gauge" in lines
    (ratio,) = [line for line in lines if line.startswith("firstfault_weight_ratio ")]
    assert float(ratio.split()[1]) == pytest.approx(9)
    assert [each.name for each in tmp_path.iterdir()] == ["run.prom"]


def test_two_losses_have_a_mass_each(tmp_path: Path) -> None:
    model, log, path = tagger(), Logged(), tmp_path / "run.prom"

    def two(model: nn.Module, window: list) -> list[torch.Tensor]:
        return [
            functional.cross_entropy(model(x), y) / 2
            + 0.1 * functional.mse_loss(model(x), torch.zeros(len(x), 5)) / 2
            for x, y in window
        ]  # fmt: skip

    with monitor(model, every=1, log=log, prometheus=path) as seen:
        train(model, [[6, 6]] * 3, two)
    masses = [value for name, value in sorted(log.calls[-1][1].items()) if name.startswith("mass/")]
    assert masses == [pytest.approx(1), pytest.approx(0.1)]
    assert path.read_text(encoding="utf-8").count('firstfault_mass{loss="test_monitor_safety.py:') == 2
    assert not seen.warnings


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"every": 0}, ValueError),
        ({"every": 2.0}, ValueError),
        ({"log": "run.log"}, TypeError),
        ({"tensorboard": "runs"}, TypeError),
        ({"evry": 3}, TypeError),
    ],
)
def test_wrong_options_are_told_before_training(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        monitor(tagger(), **options)


def test_it_takes_a_model() -> None:
    with pytest.raises(TypeError, match=r"takes the model, a torch\.nn\.Module, not SGD"):
        monitor(torch.optim.SGD(tagger().parameters(), lr=1.0))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- unusual training


def test_a_compiled_model_is_said_not_to_be_measured() -> None:
    model, log = tagger(nn.BatchNorm1d(8)), Logged()
    compiled = torch.compile(model, backend="eager")
    with monitor(compiled, every=1, log=log) as seen:
        train(compiled, [[20, 20]] * 3)
    assert seen.warnings == ["not measured: BatchNorm and losses inside of a compiled model"]
    assert log.all("mass") == [pytest.approx(1)] * 3, "the loss stands outside"


def test_steps_that_are_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "LONGEST", 8)
    model = tagger()
    with monitor(model) as seen:
        for _ in range(20):
            mean(model, [batch(4)])[0].backward()
    assert seen.warnings == ["the monitor is off: 8 micro-batches ran backward and no optimizer step was seen"]


def test_an_old_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.0.1")
    model = tagger()
    with monitor(model) as seen:
        train(model, SIZES)
    assert seen.warnings == ["nothing is measured: torch 2.0.1 is too old; 2.1 is the oldest that can be measured"]


def test_an_environment_that_tells_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "first")
    model, log = tagger(), Logged()
    with monitor(model, log=log):
        train(model, SIZES, over_all)
    assert log.calls


def _in_backward(model: nn.Module) -> None:
    optimizers_of = {each: torch.optim.SGD([each], lr=0.1) for each in model.parameters()}

    def step(parameter: torch.Tensor) -> None:
        optimizers_of[parameter].step()
        optimizers_of[parameter].zero_grad()

    for each in model.parameters():
        each.register_post_accumulate_grad_hook(step)
    for _ in range(6):
        mean(model, [batch(8)])[0].backward()


def _closures(model: nn.Module) -> None:
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    x, y = batch(8)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)


def _reentrant(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        x, y = batch(8)
        x.requires_grad_()

        def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return functional.cross_entropy(model(x), y)

        checkpoint(loss, x, y, use_reentrant=True).backward()
        optimizer.step()
        optimizer.zero_grad()


def _two_optimizers(model: nn.Module) -> None:
    both = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model[0], model[3])]
    for _ in range(6):
        mean(model, [batch(8)])[0].backward()
        for each in both:
            each.step()
            each.zero_grad()


def _failed_backward(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(6):
        x, y = batch(8)
        output = model(x)
        if number == 2:
            output.register_hook(failing)
        try:
            functional.cross_entropy(output, y).backward()
        except LookupError:
            optimizer.zero_grad()
            continue
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("loop", [_in_backward, _closures, _reentrant, _two_optimizers, _failed_backward])
@pytest.mark.parametrize("every", [1, 2])
def test_unusual_loops_train_as_without_it(loop: Callable[[nn.Module], None], every: int) -> None:
    plain, watched = tagger(), tagger()
    torch.manual_seed(2)
    loop(plain)
    before = state()
    torch.manual_seed(2)
    with monitor(watched, every=every) as seen:
        loop(watched)
    assert all(map(torch.equal, weights(plain), weights(watched)))
    assert state() == before
    assert not [each for each in seen.warnings if "Error" in each]
    if loop is _closures:
        assert seen.warnings == ["the monitor is off: the optimizer runs its closure several times in one step"]


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """Modules of a process that has imported the monitor alone."""
    code = "import sys, firstfault.monitor; print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(answer.stdout.split())


def test_it_loads_nothing_of_the_server_and_no_trainer(loaded: set[str]) -> None:
    packages = {name.partition(".")[0] for name in loaded}
    assert "torch" in packages
    assert not packages & {"pygls", "lsprotocol", "attr", "regex", "tomli", "transformers", "lightning", "accelerate"}


def test_what_it_loads_of_ours_runs_on_python_3_9(loaded: set[str]) -> None:
    """As far as a newer one can tell: syntax, and annotations that would be computed."""
    ours = [name for name in loaded if name.partition(".")[0] == "firstfault"]
    assert len(ours) > 20
    for name in ours:
        source = Path(str(sys.modules[name].__file__)).read_text(encoding="utf-8")
        tree = ast.parse(source, feature_version=(3, 9))
        assert "from __future__ import annotations" in source or not list(_unions(tree)), name


def _unions(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            annotation = getattr(node, field, None)
            if annotation is not None:
                yield from (each for each in ast.walk(annotation) if isinstance(each, ast.BitOr))
