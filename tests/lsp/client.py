"""A language client of the size that tests need: it speaks to a real server process over its pipes."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PYSERVER = Path(__file__).resolve().parents[2] / "pyserver"
SERVE = [sys.executable, "-c", "from firstfault.lsp.server import serve; raise SystemExit(serve())"]
PATIENCE = 60  # Seconds until a message counts as never coming; only a broken server needs them.
PULLING = {
    "textDocument": {"diagnostic": {}},
    "workspace": {"workspaceEdit": {"documentChanges": True}, "diagnostics": {"refreshSupport": True}},
}


class Client:
    def __init__(self, command: list[str] = SERVE, cwd: Path | None = None) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(PYSERVER), os.environ.get("PYTHONPATH")])),
        }
        self.process = subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, env=environment, cwd=cwd)
        self.settings: Any = None  # What workspace/configuration answers.
        self.asked: list[dict[str, Any]] = []  # Requests and notifications of the server, in their order.
        self.answered: dict[Any, dict[str, Any]] = {}  # Responses that nobody has fetched yet.
        self.log: list[str] = []
        self._last_id = 0
        self._inbox: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._read_log, daemon=True).start()

    def initialize(self, capabilities: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        standard = {
            "processId": os.getpid(),
            "rootUri": None,
            "capabilities": PULLING if capabilities is None else capabilities,
        }
        answer = self.request("initialize", {**standard, **params})
        self.notify("initialized", {})
        return answer

    def send(self, message: Any) -> None:
        self.send_bytes(json.dumps(message).encode())

    def send_bytes(self, body: bytes) -> None:
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def notify(self, method: str, params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def post(self, method: str, params: Any) -> int:
        """Send a request and do not wait for its answer."""
        self._last_id += 1
        self.send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        return self._last_id

    def answer(self, number: int | None) -> dict[str, Any]:
        """The whole response to a request, ``result`` or ``error``, one that came already included."""
        if number not in self.answered:
            self.until(lambda message: "method" not in message and message.get("id") == number)
        return self.answered.pop(number)

    def request(self, method: str, params: Any) -> Any:
        response = self.answer(self.post(method, params))
        assert "error" not in response, response["error"]
        return response.get("result")

    def error(self, method: str, params: Any) -> dict[str, Any]:
        response = self.answer(self.post(method, params))
        assert "error" in response, response
        return response["error"]

    def notified(self, method: str) -> Any:
        """The next message of the server with this method, one that came already included."""
        for message in self.asked:
            if message["method"] == method:
                self.asked.remove(message)
                return message.get("params")
        return self.until(lambda message: message.get("method") == method, keep=False).get("params")

    def until(self, wanted: Any, keep: bool = True) -> dict[str, Any]:
        while True:
            message = self._inbox.get(timeout=PATIENCE)
            assert message is not None, f"The server has ended:\n{''.join(self.log)}"
            self._serve(message)
            found = wanted(message)
            if "method" not in message:
                self.answered[message.get("id")] = message
            if "method" in message and (keep or not found):
                self.asked.append(message)
            if found:
                return message

    def open(self, uri: str, text: str, language: str = "python", version: int = 1) -> None:
        item = {"uri": uri, "languageId": language, "version": version, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})

    def change(self, uri: str, version: int, *changes: dict[str, Any]) -> None:
        document = {"uri": uri, "version": version}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": list(changes)})

    def pull(self, uri: str, previous: str | None = None) -> dict[str, Any]:
        params: dict[str, Any] = {"textDocument": {"uri": uri}, "identifier": "firstfault"}
        return self.request("textDocument/diagnostic", params | ({"previousResultId": previous} if previous else {}))

    def actions(self, uri: str, place: dict[str, Any], **context: Any) -> list[dict[str, Any]]:
        params = {"textDocument": {"uri": uri}, "range": place, "context": {"diagnostics": [], **context}}
        return self.request("textDocument/codeAction", params)

    def close(self) -> int:
        """Leave as the protocol demands. Returns the exit status."""
        self.request("shutdown", None)
        self.notify("exit", None)
        return self.process.wait(PATIENCE)

    def _serve(self, message: dict[str, Any]) -> None:
        """Answer what the server asks of every client."""
        if "method" not in message or "id" not in message:
            return
        result = [self.settings] if message["method"] == "workspace/configuration" else None
        self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _read(self) -> None:
        stdout = self.process.stdout
        while header := stdout.readline():
            length = int(header.split(b":")[1])
            while stdout.readline().strip():
                pass
            self._inbox.put(json.loads(stdout.read(length)))
        self._inbox.put(None)

    def _read_log(self) -> None:
        for line in self.process.stderr:
            self.log.append(line.decode("utf-8", "replace"))


@contextmanager
def running(**options: Any) -> Iterator[Client]:
    client = Client(**options)
    try:
        yield client
    finally:
        client.process.kill()
        client.process.wait()
