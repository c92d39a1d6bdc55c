"""The server outlives whatever it is sent, and goes when its editor goes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lsp.client import PATIENCE, SERVE, Client, running
from lsp.scripts import MEAN_OF_MEANS

INVALID_PARAMS, METHOD_NOT_FOUND, INVALID_REQUEST, PARSE_ERROR = -32602, -32601, -32600, -32700


def is_serving(client: Client) -> bool:
    client.open("untitled:alive", MEAN_OF_MEANS)
    return len(client.pull("untitled:alive")["items"]) == 1


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("textDocument/diagnostic", {"textDocument": 7}),
        ("textDocument/hover", {"textDocument": {"uri": "untitled:a"}, "position": {"line": "one"}}),
        ("textDocument/codeAction", None),
        ("textDocument/codeAction", [1, 2]),
        ("firstfault/diagnose", None),
        ("firstfault/diagnose", {}),
        ("firstfault/diagnose", {"text": 7}),
        ("firstfault/diagnose", {"text": "a", "paths": ["b"]}),
        ("firstfault/diagnose", {"paths": "run.log"}),
        ("firstfault/diagnose", {"paths": []}),
        ("firstfault/explain", {"id": None}),
        ("firstfault/explain", ["GA101"]),
    ],
)
def test_wrong_parameters_get_an_error_response(client: Client, method: str, params: Any) -> None:
    error = client.error(method, params)
    assert error["code"] == INVALID_PARAMS
    assert error["message"] and "Traceback" not in str(error)
    assert is_serving(client)


def test_an_unknown_method_gets_an_error_response(client: Client) -> None:
    assert client.error("firstfault/unheard", {})["code"] == METHOD_NOT_FOUND


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"[" * 100_000, b"nonsense"])
def test_text_that_is_no_json_gets_an_error_response(client: Client, body: bytes) -> None:
    client.send_bytes(body)
    assert client.answer(None)["error"]["code"] == PARSE_ERROR
    assert is_serving(client)


@pytest.mark.parametrize(
    "message",
    [
        [],
        7,
        {"method": "shutdown", "id": 1},
        {"jsonrpc": "2.0", "id": {}, "method": "shutdown"},
        {"jsonrpc": "2.0", "id": None, "method": 7},
    ],
)
def test_json_that_is_no_message_gets_an_error_response(client: Client, message: Any) -> None:
    client.send(message)
    number = message.get("id") if isinstance(message, dict) else None
    assert client.answer(number if isinstance(number, int) else None)["error"]["code"] == INVALID_REQUEST
    assert is_serving(client)


def test_a_header_that_makes_no_sense_is_passed_over(client: Client) -> None:
    client.process.stdin.write(b"Content-Length: many\r\n\r\nHello\r\n\r\n")
    assert is_serving(client)


def test_responses_that_nobody_waits_for_are_passed_over(client: Client) -> None:
    client.send({"jsonrpc": "2.0", "id": 4711, "result": {"a": 1}})
    client.send({"jsonrpc": "2.0", "id": "x", "error": {"code": 1, "message": "no"}})
    client.send({"jsonrpc": "2.0", "id": "x", "error": "no"})
    assert is_serving(client)


def test_documents_that_were_never_opened_are_passed_over(client: Client) -> None:
    nowhere = "file:///nowhere/at/all.py"
    client.change(nowhere, 2, {"text": "x"})
    client.notify("textDocument/didClose", {"textDocument": {"uri": nowhere}})
    client.notify("textDocument/didChange", {"textDocument": {"uri": nowhere}})
    assert client.pull(nowhere)["items"] == []
    place = {"start": {"line": 0, "character": 0}, "end": {"line": 9, "character": 0}}
    assert client.actions(nowhere, place) == []
    assert client.request("textDocument/hover", {"textDocument": {"uri": nowhere}, "position": place["start"]}) is None
    assert is_serving(client)


def test_a_fault_inside_gives_an_error_response_and_a_line_in_the_log() -> None:
    broken = (
        "from firstfault.lsp import linting, server\n"
        "def fail(*_): raise ZeroDivisionError('a rule fell over')\n"
        "linting.findings = fail\n"
        "server.serve()"
    )
    with running(command=[sys.executable, "-c", broken]) as client:
        client.initialize()
        client.open("untitled:a", MEAN_OF_MEANS)
        error = client.error("textDocument/diagnostic", {"textDocument": {"uri": "untitled:a"}})
        assert "ZeroDivisionError" in error["message"] and "Traceback" not in str(error)
        assert client.request("firstfault/explain", {"id": "GA101"})["markdown"]
        client.close()
        assert any("a rule fell over" in line for line in client.log)


def test_what_is_printed_goes_to_the_log_and_not_into_the_protocol() -> None:
    noisy = (
        "import os\n"
        "from firstfault.lsp import linting, server\n"
        "def print_a_lot(*_): print('hello'); os.system('echo from a child'); return []\n"
        "linting.findings = print_a_lot\n"
        "server.serve()"
    )
    with running(command=[sys.executable, "-c", noisy]) as client:
        client.initialize()
        client.open("untitled:a", MEAN_OF_MEANS)
        assert client.pull("untitled:a")["items"] == []
        client.close()
        assert {"hello\n", "from a child\n"} <= set(client.log)


def test_nothing_is_served_before_initialize(fresh: Client) -> None:
    assert fresh.error("firstfault/explain", {"id": "GA101"})["code"] == -32002
    fresh.open("untitled:a", MEAN_OF_MEANS)
    fresh.initialize()
    assert is_serving(fresh)


def test_an_initialize_that_does_not_fit_can_be_tried_again(fresh: Client) -> None:
    assert fresh.error("initialize", {"capabilities": 7})["code"] == INVALID_PARAMS
    fresh.initialize()
    assert is_serving(fresh)


def test_the_command_line_starts_the_same_server(tmp_path: Path) -> None:
    with running(command=[sys.executable, "-m", "firstfault", "serve"], cwd=tmp_path) as client:
        client.initialize()
        assert is_serving(client)
        assert client.close() == 0


def test_shutdown_and_exit_end_the_process(fresh: Client) -> None:
    fresh.initialize()
    fresh.request("shutdown", None)
    assert fresh.error("firstfault/explain", {"id": "GA101"})["code"] == INVALID_REQUEST
    fresh.notify("exit", None)
    assert fresh.process.wait(PATIENCE) == 0


def test_the_server_ends_when_its_input_closes(fresh: Client) -> None:
    fresh.initialize()
    fresh.process.stdin.close()
    assert fresh.process.wait(PATIENCE) == 0


def test_the_server_ends_when_its_editor_is_gone_though_its_input_stays_open(fresh: Client) -> None:
    editor = subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1)
    fresh.initialize(processId=editor.pid)
    assert is_serving(fresh)
    editor.communicate(b"\n")
    fresh.process.wait(PATIENCE)


def test_an_editor_that_cannot_be_seen_is_not_taken_for_dead(fresh: Client) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    fresh.initialize(processId=gone.pid)
    with pytest.raises(subprocess.TimeoutExpired):
        fresh.process.wait(1)
    assert is_serving(fresh)


def test_the_script_that_is_checked_is_never_run(client: Client, tmp_path: Path) -> None:
    mark = tmp_path / "was-run"
    script = tmp_path / "train.py"
    (tmp_path / "sibling.py").write_text(f"open({str(mark)!r}, 'w')\nstep_of = 8\n")
    text = f"open({str(mark)!r}, 'w')\nfrom sibling import step_of\n" + MEAN_OF_MEANS
    client.open(script.as_uri(), text)
    assert len(client.pull(script.as_uri())["items"]) == 1
    assert not mark.exists()


def test_the_server_imports_neither_torch_nor_a_module_of_the_folder_it_runs_in(tmp_path: Path) -> None:
    for name in ("torch", "asyncio", "json", "uuid", "ast"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the user was run')")
    code = SERVE[-1].replace("raise SystemExit(serve())", "serve(); import sys; sys.exit('torch' in sys.modules)")
    with running(command=[sys.executable, "-c", code], cwd=tmp_path) as client:
        client.initialize()
        assert is_serving(client)
        client.request("shutdown", None)
        client.notify("exit", None)
        assert client.process.wait(PATIENCE) == 0


def test_huge_documents_are_taken_and_left_alone(client: Client) -> None:
    lines = "total = total + 1  # and so on\n" * 200_000
    client.open("untitled:huge", lines + MEAN_OF_MEANS)
    assert client.pull("untitled:huge")["items"] == []
    end = {"line": 100_000, "character": 0}
    client.change("untitled:huge", 2, {"range": {"start": {"line": 0, "character": 0}, "end": end}, "text": ""})
    assert len(client.pull("untitled:huge")["items"]) == 1
    assert is_serving(client)
