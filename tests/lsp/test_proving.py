"""``firstfault/measure`` in the editor's hands: a real run, its verdicts at the squiggles, and its end in any case."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from firstfault.lsp.convert import uri_of
from lsp.client import Client, running

FAILED, CANCELLED = -32803, -32800
# Ten and ninety targets in a window of two micro-batches: in a mean of means one target weighs nine times another.
SCRIPT = """\
import sys

import torch
import torch.nn.functional as F

ACCUMULATION_STEPS = 2


def collate(samples):
    tags = torch.nn.utils.rnn.pad_sequence(samples, batch_first=True, padding_value=-100)
    return tags.clamp(min=0), tags


def main(lengths):
    model = torch.nn.Embedding(50, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    samples = [torch.randint(0, 5, (each,)) for each in lengths * 8]
    loader = torch.utils.data.DataLoader(samples, batch_size=1, collate_fn=collate)
    print("begins")
    for step, (tokens, tags) in enumerate(loader):
        loss = F.cross_entropy(model(tokens).reshape(-1, 5), tags.reshape(-1), ignore_index=-100)
        loss = loss / ACCUMULATION_STEPS
        loss.backward()
        if (step + 1) % ACCUMULATION_STEPS == 0:
            optimizer.step()
            optimizer.zero_grad()


main([int(each) for each in sys.argv[1:]])
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def environment(**more: str) -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}, **more}


def params(script: Path, *arguments: str, **more: Any) -> dict[str, Any]:
    command = [sys.executable, script.name, *arguments]
    return {"command": command, "cwd": str(script.parent), "env": environment(), "uri": uri_of(str(script)), **more}


def items(client: Client, script: Path) -> list[dict[str, Any]]:
    return client.pull(uri_of(str(script)))["items"]


def test_a_proven_finding_has_its_number_until_the_text_changes(client: Client, script: Path) -> None:
    uri = uri_of(str(script))
    client.open(uri, SCRIPT)
    (suspected,) = items(client, script)
    assert suspected["code"] == "GA101"
    answer = client.request("firstfault/measure", params(script, "10", "90", workDoneToken="m"))
    assert (answer["schema"], answer["ended"]) == (1, "Stopped after 2 windows, as planned.")
    (proven,) = [each for each in answer["verdicts"] if each["state"] == "proven"]
    assert (proven["code"], proven["suspected"]) == ("GA101", True)
    assert answer["picture"].startswith("<svg") and answer["printed"] == "begins\n"
    assert answer["windows"][0]["remarks"][0].startswith("calls: ")
    client.notified("workspace/diagnostic/refresh")
    (shown,) = items(client, script)
    assert shown["message"].startswith("Proven: One target weighs up to 9 times as much as another")
    assert shown["message"].endswith(suspected["message"])
    assert (shown["severity"], shown["range"]) == (1, suspected["range"])
    client.change(uri, 2, {"text": SCRIPT + "\n# another text\n"})
    assert items(client, script)[0]["message"] == suspected["message"]
    client.change(uri, 3, {"text": SCRIPT.replace("\n", "\r\n")})
    assert items(client, script)[0]["message"] == shown["message"], "line ends do not make another script"


def test_progress_tells_the_windows(client: Client, script: Path) -> None:
    client.request("firstfault/measure", params(script, "10", "90", windows=3, workDoneToken="p"))
    steps = [
        each["params"]["value"]
        for each in client.asked
        if each["method"] == "$/progress" and each["params"]["token"] == "p"
    ]
    assert steps[0]["kind"] == "begin" and steps[0]["cancellable"] and steps[-1]["kind"] == "end"
    told = [each["message"] for each in steps[1:-1]]
    assert len(told) == len(set(told)), "each stage is told once"
    assert "Waiting for torch to be imported" in told


def test_a_refuted_finding_goes_and_what_was_not_measured_stays(client: Client, script: Path) -> None:
    uri = uri_of(str(script))
    client.open(uri, SCRIPT)
    before = items(client, script)
    answer = client.request("firstfault/measure", params(script, "40", "40"))
    (verdict,) = [each for each in answer["verdicts"] if each["code"] == "GA101"]
    assert verdict["state"] == "not measured" and "same number" in verdict["message"]
    assert items(client, script) == before, "nothing is known, so nothing changes"
    text = SCRIPT.replace("        loss.backward()", f"{WEIGHED}        loss.backward()")
    script.write_text(text)
    client.change(uri, 2, {"text": text})
    assert [each["code"] for each in items(client, script)] == ["GA101"]
    answer = client.request("firstfault/measure", params(script, "10", "90"))
    assert [each["state"] for each in answer["verdicts"]] == ["refuted"]
    assert items(client, script) == []


# The gradient of each micro-batch is weighed by its targets, 50 of them on the average: no text of the loss shows it.
WEIGHED = "        loss.register_hook(lambda gradient: gradient * tags.numel() / 50)\n"


def test_what_cannot_be_run_is_said_in_a_sentence(client: Client, script: Path) -> None:
    for more, said in (
        ({"command": ["no-such-program", "train.py"]}, "There is no program no-such-program on the path."),
        ({"cwd": str(script.parent / "nowhere")}, "There is no folder"),
    ):
        error = client.error("firstfault/measure", {**params(script), **more})
        assert error["code"] == FAILED and error["message"].startswith(said)
    answer = client.request("firstfault/measure", params(script, "no number"))
    assert answer["ended"].startswith("ValueError: invalid literal") and "Traceback" in answer["printed"]
    assert client.error("firstfault/measure", {"command": "python train.py"})["code"] == -32602


SLEEPING = """\
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
with open("pids.part", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename("pids.part", "pids")
time.sleep(600)
"""


def started(script: Path) -> list[int]:
    """The processes of a script that only waits, once they are there."""
    file = script.parent / "pids"
    until(file.exists)
    return [int(each) for each in file.read_text().split()]


def until(look: Any, patience: float = 60) -> None:
    end = time.monotonic() + patience
    while not look():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("way", ["request", "button"])
def test_a_cancelled_run_leaves_no_process(client: Client, script: Path, way: str) -> None:
    script.write_text(SLEEPING)
    number = client.post("firstfault/measure", params(script, workDoneToken=f"c{way}"))
    pids = started(script)
    if way == "request":
        client.notify("$/cancelRequest", {"id": number})
    else:
        client.notify("window/workDoneProgress/cancel", {"token": f"c{way}"})
    assert client.answer(number)["error"]["code"] == CANCELLED
    until(lambda: not any(map(is_alive, pids)))
    (script.parent / "pids").unlink()
    answer = client.request("firstfault/measure", params(script, timeout=1))
    assert answer["ended"] == "The time limit of 1 s ended the run before the first backward."


def test_two_runs_do_not_disturb_each_other(client: Client, script: Path) -> None:
    script.write_text(SLEEPING)
    number = client.post("firstfault/measure", params(script))
    started(script)
    assert "running already" in client.error("firstfault/measure", params(script))["message"]
    client.notify("$/cancelRequest", {"id": number})
    client.answer(number)


@pytest.mark.parametrize("way", ["closed", "exit"])
def test_nothing_is_left_when_the_editor_goes(script: Path, tmp_path: Path, way: str) -> None:
    script.write_text(SLEEPING)
    with running() as client:
        client.initialize()
        private = tmp_path / "private"
        private.mkdir()
        client.post("firstfault/measure", params(script))
        pids = started(script)
        folders = {measured_folder(pid) for pid in pids}
        if way == "closed":
            client.process.stdin.close()
            client.process.wait(60)
        else:
            client.close()
        until(lambda: not any(map(is_alive, pids)))
        assert not any(os.path.exists(each) for each in folders)


def measured_folder(pid: int) -> str:
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(each for each in variables if each.startswith(b"FIRSTFAULT_MEASURE=")).partition(b"=")[2].decode()


def test_a_probe_is_written_from_the_text_as_it_is_shown(client: Client, script: Path) -> None:
    uri = uri_of(str(script))
    client.open(uri, SCRIPT.replace("ACCUMULATION_STEPS", "WINDOW"))
    answer = client.request("firstfault/scaffold", {"uri": uri})
    assert answer["name"] == "train_probe.py"
    assert "def accumulate(" in answer["text"] and "WINDOW" in answer["text"]
    compile(answer["text"], answer["name"], "exec")
    untitled = "untitled:Untitled-1"
    client.open(untitled, "x = 1\n")
    assert client.request("firstfault/scaffold", {"uri": untitled})["name"] == "Untitled-1_probe.py"
    assert client.error("firstfault/scaffold", {"uri": uri_of(str(script.parent / "gone.py"))})["code"] == FAILED
