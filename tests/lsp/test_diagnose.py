"""``firstfault/diagnose`` in the editor's hands: progress, cancellation, and words for what cannot be read."""

import sys
from pathlib import Path
from typing import Any, get_type_hints

from firstfault.diagnose import report as reports
from firstfault.lsp import protocol
from lsp.client import Client, running
from lsp.scripts import MEAN_OF_MEANS

CANCELLED, FAILED = -32800, -32803
CRASH = """\
Traceback (most recent call last):
  File "/home/ada/tagger/fit.py", line 31, in <module>
    fit(net)
  File "/home/ada/tagger/fit.py", line 12, in fit
    scores = net(words)
RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x30 and 32x5)
"""
# A server whose diagnosis works for as long as nobody stops it, and which says so in its log.
ENDLESS = """
from firstfault.lsp import server, diagnosing
import sys, threading
def endless(*_):
    try:
        while True:
            sum(range(1000))
    finally:
        print("the work has ended", file=sys.stderr, flush=True)
diagnosing._report = endless
server.serve()
"""


def progress(client: Client, token: str) -> list[dict[str, Any]]:
    return [
        each["params"]["value"]
        for each in client.asked
        if each["method"] == "$/progress" and each["params"]["token"] == token
    ]


def test_a_text_gives_a_report(client: Client) -> None:
    report = client.request("firstfault/diagnose", {"text": CRASH, "name": "terminal"})
    assert (report["schema"], report["initiating"]["exception"]) == (1, "RuntimeError")
    assert report["initiating"]["frame"] == {"file": "/home/ada/tagger/fit.py", "line": 12, "function": "fit"}
    assert {each["file"] for each in report["initiating"]["evidence"]} == {"terminal"}
    assert report["read"]["bytes"] == len(CRASH)


def test_paths_are_one_job(client: Client, tmp_path: Path) -> None:
    (tmp_path / "rank_0.log").write_text("step 1\nstep 2\n")
    (tmp_path / "rank_1.log").write_text(CRASH)
    report = client.request("firstfault/diagnose", {"paths": [str(tmp_path)]})
    assert report["read"]["files"] == 2
    assert report["initiating"]["evidence"][0]["file"] == str(tmp_path / "rank_1.log")


def test_a_text_without_a_failure(client: Client) -> None:
    assert client.request("firstfault/diagnose", {"text": "", "name": "nothing"})["verdict"] == "no-failure"


def test_progress_begins_tells_and_ends(client: Client, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(CRASH)
    client.request("firstfault/diagnose", {"paths": [str(tmp_path / "run.log")], "workDoneToken": "a"})
    steps = progress(client, "a")
    assert [each["kind"] for each in steps] == ["begin", *["report"] * (len(steps) - 2), "end"]
    assert steps[0]["cancellable"] is True
    assert [each.get("message") for each in steps].count("Reading run.log (1 of 1)") == 1


def test_what_cannot_be_read_is_said_in_a_sentence(client: Client, tmp_path: Path) -> None:
    (tmp_path / "binary.log").write_bytes(bytes(range(256)) * 64)
    for path, said in (("nowhere.log", "There is no file or folder"), ("binary.log", "is a binary file")):
        params = {"paths": [str(tmp_path / path)], "workDoneToken": path}
        error = client.error("firstfault/diagnose", params)
        assert error["code"] == FAILED and said in error["message"] and "data" not in error
        assert progress(client, path)[-1]["kind"] == "end"


def test_a_cancelled_diagnosis_is_answered_at_once_and_its_work_ends() -> None:
    with running(command=[sys.executable, "-c", ENDLESS]) as client:
        client.initialize()
        number = client.post("firstfault/diagnose", {"text": CRASH, "name": "a", "workDoneToken": "t"})
        client.open("untitled:meanwhile", MEAN_OF_MEANS)
        assert len(client.pull("untitled:meanwhile")["items"]) == 1
        client.notify("$/cancelRequest", {"id": number})
        assert client.answer(number)["error"]["code"] == CANCELLED
        client.close()
        assert "the work has ended\n" in client.log
        assert [each["kind"] for each in progress(client, "t")] == ["begin", "end"]


def test_the_progress_message_has_a_working_cancel_button() -> None:
    with running(command=[sys.executable, "-c", ENDLESS]) as client:
        client.initialize()
        number = client.post("firstfault/diagnose", {"text": CRASH, "name": "a", "workDoneToken": "t"})
        client.notify("window/workDoneProgress/cancel", {"token": "t"})
        assert client.answer(number)["error"]["code"] == CANCELLED
        client.notify("window/workDoneProgress/cancel", {"token": "t"})
        assert client.pull("untitled:none")["items"] == []


def test_the_end_of_the_process_does_not_wait_for_a_diagnosis() -> None:
    with running(command=[sys.executable, "-c", ENDLESS]) as client:
        client.initialize()
        client.post("firstfault/diagnose", {"text": CRASH, "name": "a"})
        assert client.close() == 0


def test_several_diagnoses_at_a_time(client: Client) -> None:
    numbers = [client.post("firstfault/diagnose", {"text": CRASH, "name": f"part {n}"}) for n in range(4)]
    answers = [client.answer(number)["result"] for number in reversed(numbers)]
    assert [each["initiating"]["evidence"][0]["file"] for each in answers] == ["part 3", "part 2", "part 1", "part 0"]


def test_the_published_shapes_are_those_of_the_report() -> None:
    """What ``protocol.py`` promises to the extension is what ``report.py`` holds: same names, same nesting."""
    for name in ("Evidence", "Frame", "Initiating", "Collateral", "Suspect", "Missing", "Attempt", "Read", "Report"):
        promised, held = get_type_hints(getattr(protocol, name)), get_type_hints(getattr(reports, name))
        assert list(promised) == [*(["schema"] if name == "Report" else []), *held], name
        for field, kind in held.items():
            assert _words(promised[field]) == _words(kind), f"{name}.{field}"


def _words(kind: Any) -> str:
    """A type as it comes out of JSON: tuples as lists, and without the module that it stands in."""
    text = str(kind).replace(", ...", "").replace("tuple[", "list[").replace("typing.", "")
    for module in ("firstfault.diagnose.report.", "firstfault.lsp.protocol.", "<class '", "'>"):
        text = text.replace(module, "")
    return " | ".join(sorted(_parts(text)))


def _parts(text: str) -> list[str]:
    if text.startswith(("Optional[", "Union[")):
        text = text.replace("Optional[", "", 1).replace("Union[", "", 1)[:-1].replace(", ", " | ", 1) + " | NoneType"
    return [part.strip().replace("NoneType", "None") for part in text.split("|")]
