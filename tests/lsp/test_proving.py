"""``firstfault/measure`` in the editor's hands: a real run, its verdicts at the squiggles, and its end in any case."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firstfault.lsp.convert import uri_of
from lsp.client import Client, running
from lsp.test_actions import applied

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


# ------------------------------------------------------------------------------------------------- a fix is proved


@pytest.fixture(scope="module")
def prover() -> Iterator[Client]:
    """A server whose client has the command that the light bulb's offer needs."""
    with running() as client:
        client.initialize(initializationOptions={"proveFix": True})
        yield client


def offers(client: Client, uri: str) -> list[dict[str, Any]]:
    everywhere = {"start": {"line": 0, "character": 0}, "end": {"line": 999, "character": 0}}
    return [each for each in client.actions(uri, everywhere) if "command" in each]


def test_a_fix_is_proved_before_it_is_applied(prover: Client, script: Path) -> None:
    uri = uri_of(str(script))
    prover.open(uri, SCRIPT, version=4)
    offer = offers(prover, uri)[0]
    assert offer["title"].startswith("Prove this fix on a run: ") and "edit" not in offer
    assert offer["command"]["command"] == "firstfault.proveFix"
    (fix,) = offer["command"]["arguments"]
    files = sorted(script.parent.rglob("*"))
    proof = prover.request("firstfault/proveFix", params(script, "10", "90", fix=fix, workDoneToken="f"))
    assert (proof["proved"], proof["why"]) == (True, ""), proof["why"]
    assert sorted(script.parent.rglob("*")) == files and script.read_text() == SCRIPT
    numbers = {each["what"].split()[0]: (each["before"], each["after"], each["right"]) for each in proof["compared"]}
    assert numbers["Ratio"] == ("9.0000", "1.0000", True) and numbers["Weight"][1:] == ("1.0000", True)
    assert numbers["Distance"][1:] == ("0", True) and numbers["Optimizer"] == ("2", "2", True)
    assert [each["code"] for each in proof["before"]["verdicts"] if each["state"] == "proven"] == ["GA101"]
    assert not [each for each in proof["after"]["verdicts"] if each["state"] == "proven"]
    told = [each["params"]["value"].get("message") for each in prover.asked if each["method"] == "$/progress"]
    assert any(each and each.startswith("As it stands: ") for each in told)
    assert any(each and each.startswith("With the fix: ") for each in told)
    fixed = applied(SCRIPT, proof["edits"])
    assert proof["version"] == 4 and fixed != SCRIPT
    assert items(prover, script)[0]["message"].startswith("Proven: ")
    prover.change(uri, 5, {"text": fixed})
    assert items(prover, script) == []


def test_without_the_fault_nothing_is_proved(prover: Client, script: Path) -> None:
    """Equal counts: the run cannot tell, and the script with the fix is not even run."""
    uri = uri_of(str(script))
    prover.open(uri, SCRIPT)
    (fix,) = offers(prover, uri)[0]["command"]["arguments"]
    proof = prover.request("firstfault/proveFix", params(script, "40", "40", fix=fix))
    assert (proof["proved"], proof["after"]) == (False, None)
    assert proof["why"].startswith("GA101 is not measured on the script as it stands")


WRONG = """
import sys
from firstfault.lint.rules import mean_of_means
from firstfault.lint import Fix
from firstfault.lsp import linting, server
from firstfault.text import Edit, Position, Span
unmeasured = linting.unmeasured
def wrong(ls, source, path, uri):
    number = source.splitlines().index("        loss = loss / ACCUMULATION_STEPS") + 1 if "loss / A" in source else 0
    span = Span(Position(number, 1), Position(number, 41))
    fix = Fix("Wrong", "safe", (Edit(span, TEXT),))
    return [each._replace(fixes=(fix,)) for each in unmeasured(ls, source, path, uri) or []]
linting.unmeasured = wrong
server.serve()
"""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("        loss = loss / 2.0  # as before", "With the fix, GA101 is still proven."),
        ("        loss = loss * 1.0", "With the fix, GA101 is still proven."),
        ("        loss = loss * tags.numel() / 50", "With the fix, another fault is proven: GA102."),
        ("        raise SystemExit", "With the fix, GA101 is not measured."),
        ("        loss = loss * tags.numel() / 100; optimizer.step()", "With the fix, "),
    ],
)
def test_a_fix_that_does_not_help_is_not_proved(script: Path, text: str, why: str) -> None:
    with running(command=[sys.executable, "-c", WRONG.replace("TEXT", repr(text))]) as client:
        client.initialize(initializationOptions={"proveFix": True})
        client.open(uri_of(str(script)), SCRIPT)
        line = SCRIPT.splitlines().index("        loss = loss / ACCUMULATION_STEPS") + 1
        fix = {"uri": uri_of(str(script)), "version": 1, "code": "GA101", "line": line, "title": "Wrong"}
        proof = client.request("firstfault/proveFix", params(script, "10", "90", fix=fix))
        assert not proof["proved"] and proof["why"].startswith(why), proof["why"]


def test_a_fix_of_another_text_is_refused(prover: Client, script: Path) -> None:
    uri = uri_of(str(script))
    prover.open(uri, SCRIPT)
    (fix,) = offers(prover, uri)[0]["command"]["arguments"]
    for change, said in (
        ({"version": 9}, "The text has changed since"),
        ({"title": "Another"}, "The text has changed since"),
        ({"uri": uri_of(str(script.parent / "gone.py"))}, "Only a fix of a script that is open"),
    ):
        error = prover.error("firstfault/proveFix", params(script, "10", "90", fix={**fix, **change}))
        assert error["code"] == FAILED and error["message"].startswith(said)
    prover.change(uri, 2, {"text": SCRIPT + "# not saved\n"})
    error = prover.error("firstfault/proveFix", params(script, "10", "90", fix={**fix, "version": 2}))
    assert error["message"].endswith("Save it first.")


def test_a_client_without_the_command_gets_no_offer(client: Client, script: Path) -> None:
    client.open(uri_of(str(script)), SCRIPT)
    assert offers(client, uri_of(str(script))) == []


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
