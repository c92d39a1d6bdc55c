"""The process of an experiment: whatever it does, there is one sentence or a verdict, and nothing is left behind."""

import ast
import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from experiment import TAGGER, Forked

from firstfault.cli import main
from firstfault.prove.experiments import process
from firstfault.prove.experiments.proof import Refused, Setting, prove

HERE = __file__
OURS = "import os\n\n\ndef batch(n):\n    return None\n\n\ndef build():\n"


@pytest.fixture
def forks(monkeypatch):
    """Most tests are about what a process does, not about how Python starts."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1)], lr=0.1)  # the first optimizer imports a thousand modules: once, not in each child
    monkeypatch.setattr(process, "_started", lambda setting, folder, arguments: Forked(folder, arguments))


def refused(folder: Path, source: str, **setting: object) -> Refused:
    probe = folder / "my_probe.py"
    probe.write_text(source, encoding="utf-8")
    with pytest.raises(Refused) as caught:
        prove(Setting(str(probe), **{"python": sys.executable, "timeout": 60.0, **setting}))
    return caught.value


def gone(pid: int) -> bool:
    for _ in range(100):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_a_probe_without_build_is_told_in_one_sentence(forks, tmp_path):
    assert refused(tmp_path, "def batch(n):\n    return n\n").sentence == "my_probe.py defines no build()."


def test_what_the_users_code_raises_is_shown_with_its_own_frames(forks, tmp_path):
    found = refused(tmp_path, TAGGER + "\n\ndef accumulate(model, micro_batches):\n    model(micro_batches[0])\n")
    assert found.sentence == "accumulate() raised TypeError."
    frames = [line.strip() for line in found.trace.splitlines() if line.strip().startswith("File ")]
    assert frames[0].endswith("in accumulate") and not [each for each in frames if "experiments" in each]
    assert found.trace.splitlines()[-1].startswith("TypeError: ") and len(found.trace.splitlines()) < 30


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("os.kill(os.getpid(), 9)", "SIGKILL ended the experiment in build(); the system kills"
         " so when memory is exhausted."),
        ("os._exit(7)", "The experiment's process ended with status 7 in build() and gave no answer."),
        ("raise SystemExit('usage: train.py')", "build() ended Python (exit status usage: train.py)."),
        ("import torch; return torch.nn.Linear(2, 2).cuda()",
         "build() raised AssertionError. The experiment runs on the CPU and shows no GPU."),
        ("return 3", "build() gives no torch.nn.Module but an int."),
        ("raise MemoryError", "build() raised MemoryError."),
    ],
)  # fmt: skip
def test_a_death_is_told_in_one_sentence(forks, tmp_path, code, sentence):
    assert refused(tmp_path, f"{OURS}    {code}\n").sentence == sentence


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_probe_that_hangs_and_has_children_is_ended_with_them(tmp_path):
    hanging = """\
    import os, signal, subprocess, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def batch(n):
        return None

    def build():
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        with open(PIDS, "w") as file:
            file.write(f"{os.getpid()} {child.pid}")
        os.rename(PIDS, PIDS + ".done")
        time.sleep(600)
    """
    pids = tmp_path / "pids"
    source = textwrap.dedent(hanging).replace("PIDS", repr(str(pids)))
    started = tmp_path / "pids.done"
    found = refused(tmp_path, source, cancelled=started.exists)
    assert found.sentence == "Cancelled in build()."
    assert all(gone(int(pid)) for pid in started.read_text(encoding="utf-8").split())
    assert refused(tmp_path, source, timeout=0.1).sentence.startswith("The time limit of 0.1 s ended the experiment")


def test_garbage_on_the_output_is_no_answer(tmp_path, capfd):
    noisy = 'import sys\nprint(\'{"kind": "refused", "sentence": "no"}\')\nsys.stderr.write(\'\\x00garbage\')\n'
    probe = tmp_path / "probe.py"
    probe.write_text(noisy + TAGGER, encoding="utf-8")
    status = main(["prove", str(probe), "--python", sys.executable, "--format", "json"])
    answer = json.loads(capfd.readouterr().out)
    assert (status, answer["verdict"], answer["schema"]) == (0, "no-fault", 1)
    assert answer["measured"]["variable"]["B/C"]["error"] < 1e-14


def test_an_interpreter_that_cannot_serve_is_named(tmp_path):
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n', encoding="utf-8")
    bare.chmod(0o755)
    assert "has no torch. Name the Python" in refused(tmp_path, OURS + "    pass\n", python=str(bare)).sentence
    missing = refused(tmp_path, OURS + "    pass\n", python=str(tmp_path / "nothing")).sentence
    assert missing.endswith("could not be started: No such file or directory.")


def test_an_old_torch_is_named(tmp_path, monkeypatch):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "torch.py").write_text("__version__ = '2.0.1'\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "old"))
    assert "is too old; it must be 2.1 or newer" in refused(tmp_path, OURS + "    pass\n").sentence


@pytest.mark.parametrize(
    "words",
    [[], ["nowhere.py"], [HERE, "--micro-batches", "1"], [HERE, "--samples", "7"], [HERE, "--timeout", "0"]],
)
def test_bad_usage_is_refused_before_anything_starts(words, capsys):
    assert main(["prove", *words]) == 2
    assert capsys.readouterr().err.startswith("firstfault: ")


# ---------------------------------------------------------------------------------------------- ranks

RANKS = """
import torch.distributed as dist


def batch(n):
    tokens, labels = torch.randint(0, 23, (n, 120)), torch.randint(0, 7, (n, 120))
    labels[n // 2 :, 40:] = -100
    return tokens, labels


def accumulate(model, micro_batches):
    targets = sum((labels != -100).sum() for _, labels in micro_batches)
    GATHER
    for tokens, labels in micro_batches:
        (total(model, tokens, labels) / targets FACTOR).backward()
"""
GATHER = "dist.all_reduce(targets)"


@pytest.mark.parametrize(
    ("gather", "factor", "code"),
    [("pass", "", "rank-denominator"), (GATHER, "", "world-factor"), (GATHER, "* dist.get_world_size()", None)],
)
def test_two_ranks_of_120_and_40_tokens(forks, tmp_path, gather, factor, code):
    probe = tmp_path / "probe.py"
    probe.write_text(TAGGER + RANKS.replace("GATHER", gather).replace("FACTOR", factor), encoding="utf-8")
    found = prove(Setting(str(probe), sys.executable, micro_batches=1, samples=2, ranks=2, timeout=120.0))
    assert [fault.code for fault in found.faults] == ([code] if code else []), found
    assert found.verdict == ("fault" if code else "no-fault")
    if code == "rank-denominator":
        assert "count 120 and 40 targets" in found.faults[0].reason and "ratio 3.0000" in found.faults[0].reason
    if code == "world-factor":
        assert found.ranked["uniform"]["ratio"] == pytest.approx(0.5, rel=1e-12)
    if code is None:
        assert found.ranked["variable"]["error"] < 1e-14


def test_ranks_that_do_not_share_their_gradients_are_told(forks, tmp_path):
    alone = """

def accumulate(model, micro_batches):
    targets = sum((labels != -100).sum() for _, labels in micro_batches)
    dist.all_reduce(targets)
    for place, (tokens, labels) in enumerate(micro_batches):
        model.require_backward_grad_sync = place == 0
        (total(model, tokens, labels) * dist.get_world_size() / targets).backward()
"""
    probe = tmp_path / "probe.py"
    probe.write_text("import torch.distributed as dist\n" + TAGGER + alone, encoding="utf-8")
    found = prove(Setting(str(probe), sys.executable, micro_batches=2, samples=8, ranks=2, timeout=120.0))
    assert [fault.code for fault in found.faults] == ["ranks-apart"], found


def test_a_rank_that_dies_ends_the_others(forks, tmp_path):
    rank_one_dies = "os._exit(5) if dist.get_rank() else dist.get_world_size() == 1 or time.sleep(600)"
    source = "import os, time\n" + TAGGER + RANKS.replace("GATHER", rank_one_dies).replace("FACTOR", "")
    found = refused(tmp_path, source, micro_batches=1, samples=2, ranks=2)
    assert found.sentence.startswith("The experiment's process ended with status 5 in accumulate()")


def test_what_the_worker_loads_with_its_package_is_empty():
    """The user's Python may be 3.9; what stands above the worker must not need a newer one."""
    package = Path(process.__file__).parent
    for folder in (package, package.parent, package.parent.parent, package / "worker"):
        tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
        assert not [each for each in ast.walk(tree) if isinstance(each, (ast.Import, ast.ImportFrom))], folder


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_experiment_ends_with_who_asked_for_it(tmp_path):
    probe = tmp_path / "probe.py"
    body = "    import os, time\n    with open(PID, 'w') as file:\n        file.write(str(os.getpid()))\n"
    body += "    os.rename(PID, PID + '.done')\n    time.sleep(600)\n"
    probe.write_text(OURS + body.replace("PID", repr(str(tmp_path / "pid"))), encoding="utf-8")
    command = [sys.executable, "-m", "firstfault", "prove", str(probe), "--python", sys.executable]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    asking = subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(temporary)})
    written = tmp_path / "pid.done"
    while not written.exists() and asking.poll() is None:
        time.sleep(0.02)
    asking.kill()  # it has no time to clean up
    asking.communicate()
    assert gone(int(written.read_text(encoding="utf-8")))
    assert not list(temporary.iterdir())
