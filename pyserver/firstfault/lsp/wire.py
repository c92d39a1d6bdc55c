"""The protocol loop as this server needs it: every request gets an answer, and no message ends the server.

pygls leaves some messages unanswered (wrong parameters, anything after ``shutdown``) and shows internal faults to the
user. Here a request that cannot be served gets an error response with one plain sentence, and the log gets the rest.
"""

import json
import logging
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from cattrs import Converter
from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInternalError, JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.protocol import JsonRPCRequestMessage, LanguageServerProtocol, default_converter, lsp_method

from firstfault.lsp.documents import Documents
from firstfault.lsp.notebooks import SYNC, Notebooks
from firstfault.lsp.settings import Settings
from firstfault.lsp.verdicts import Verdicts

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger(__name__)

REQUEST_FAILED = types.LSPErrorCodes.RequestFailed.value
_INVALID_REQUEST = types.ErrorCodes.InvalidRequest.value
_PARSE_ERROR = types.ErrorCodes.ParseError.value
_PATIENCE = 10.0  # seconds
_NOT_INITIALIZED = types.ErrorCodes.ServerNotInitialized.value


class RequestFailed(JsonRpcException):
    """The request was right but cannot be served; the message is a sentence for the user."""

    CODE = REQUEST_FAILED


class Wire(LanguageServerProtocol):
    _server: "Server"

    def structure_message(self, data: dict[str, Any]) -> Any:
        # pygls calls this for every object inside a message. The message is given its type as a whole, below.
        return data

    def handle_message(self, message: Any) -> None:
        if not isinstance(message, dict):
            self._refuse(None, _INVALID_REQUEST, "A message must be one JSON object.")
            return
        refusal = self._refusal(message)
        if refusal is not None:
            self._refuse_message(message, *refusal)
            return
        try:
            typed = super().structure_message(message)
        except JsonRpcException:
            self._refuse_message(message, JsonRpcInvalidParams.CODE, _unfit(message))
            return
        super().handle_message(typed)

    def _refusal(self, message: dict[str, Any]) -> tuple[int, str] | None:
        """Why this message cannot be taken at all, if so."""
        method = message.get("method")
        if message.get("jsonrpc") != self.VERSION:
            return _INVALID_REQUEST, 'A message must say "jsonrpc": "2.0".'
        if "id" in message and not isinstance(message["id"], int | str):
            return _INVALID_REQUEST, "A message's id must be a number or a string."
        if "method" not in message:
            return None
        if not isinstance(method, str):
            return _INVALID_REQUEST, "A message's method must be a string."
        if self._shutdown and method != types.EXIT:
            return _INVALID_REQUEST, "The server is shutting down."
        if self._workspace is None and method not in (types.INITIALIZE, types.EXIT):
            return _NOT_INITIALIZED, "The first request must be initialize."
        return None

    def _refuse_message(self, message: dict[str, Any], code: int, reason: str) -> None:
        logger.warning("Refused a message (%s): %s", message.get("method", "response"), reason)
        if "id" not in message:
            return
        if "method" in message:
            msg_id = message["id"] if isinstance(message["id"], int | str) else None
            self._refuse(msg_id, code, reason)
        elif isinstance(message["id"], int | str) and message["id"] in self._request_futures:
            self._handle_response(message["id"], error=types.ResponseError(code=code, message=reason))

    def _refuse(self, msg_id: int | str | None, code: int, reason: str) -> None:
        self._send_data({"jsonrpc": self.VERSION, "id": msg_id, "error": {"code": code, "message": reason}})

    def _send_handler_result(self, future: "Future[Any] | asyncio.Future[Any]", *, msg_id: int | str) -> None:
        failure = None if future.cancelled() else future.exception()
        if failure is None:
            super()._send_handler_result(future, msg_id=msg_id)  # type: ignore[arg-type]
            return
        self._request_futures.pop(msg_id, None)
        if isinstance(failure, JsonRpcException):
            logger.warning("A request failed: %s", failure.message)
            self._refuse(msg_id, failure.code, failure.message)
            return
        logger.error("A request failed", exc_info=failure)
        reason = f"Firstfault failed inside ({type(failure).__name__}); its output channel says more."
        self._refuse(msg_id, JsonRpcInternalError.CODE, reason)

    @lsp_method(types.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(self, params: types.DidOpenTextDocumentParams) -> None:
        self._server.changed(self._server.documents.open(params.text_document).uri)

    @lsp_method(types.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: types.DidChangeTextDocumentParams) -> None:
        if self._server.documents.change(params) is not None:
            self._server.changed(params.text_document.uri)

    @lsp_method(types.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(self, params: types.DidCloseTextDocumentParams) -> None:
        self._server.documents.close(params.text_document.uri)
        self._server.closed(params.text_document.uri)

    @lsp_method(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    def lsp_notebook_document__did_open(self, params: types.DidOpenNotebookDocumentParams) -> None:
        self._server.notebooks.open(params)
        self._server.changed(params.notebook_document.uri)

    @lsp_method(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def lsp_notebook_document__did_change(self, params: types.DidChangeNotebookDocumentParams) -> None:
        for uri in self._server.notebooks.change(params):
            self._server.closed(uri, is_cell=True)
        self._server.changed(params.notebook_document.uri)

    @lsp_method(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def lsp_notebook_document__did_close(self, params: types.DidCloseNotebookDocumentParams) -> None:
        for uri in self._server.notebooks.close(params):
            self._server.closed(uri, is_cell=True)


class Server(LanguageServer):
    """What lives as long as the process: open documents, settings, and what waits for its turn."""

    protocol: Wire

    def __init__(self, version: str) -> None:
        super().__init__(
            "firstfault", version, protocol_cls=Wire, converter_factory=_converter, notebook_document_sync=SYNC
        )
        self.documents = Documents()
        self.notebooks = Notebooks(self.documents)
        self.initial_settings = Settings()  # From initializationOptions: they hold where the client says nothing else.
        self.settings = Settings()
        self.pulls = False  # Whether the client asks for diagnostics; else they are pushed.
        self.proves_fixes = False  # Whether the client has the command that the light bulb's offer needs.
        self.files_changed = 0  # How often files that are not open have changed on disk.
        self.waiting: dict[str, asyncio.TimerHandle] = {}  # Pushes by URI.
        self.told: set[str] = set()  # What was said about project files; each is said once.
        self.tasks: dict[int | str, asyncio.Task[Any]] = {}  # Running ones by progress token.
        self.verdicts = Verdicts()
        self.runs: dict[
            threading.Thread, threading.Event
        ] = {}  # Measurements that run; each ends when its event is set.

    def changed(self, uri: str) -> None:
        from firstfault.lsp import linting

        linting.push_soon(self, uri)

    def closed(self, uri: str, is_cell: bool = False) -> None:
        from firstfault.lsp import linting

        linting.clear(self, uri, is_cell)

    def end_runs(self) -> None:
        """Before the process leaves: what it started goes first. Asked, then forced, a command takes a few seconds."""
        for ended in list(self.runs.values()):
            ended.set()
        for thread in list(self.runs):
            thread.join(_PATIENCE)

    def report_server_error(self, error: Exception, source: Any) -> None:
        """A fault outside of a request: for the log, not for a message box. Text that is no JSON gets its answer."""
        logger.error("%s: %s", type(error).__name__, error)
        if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError):
            self.protocol._refuse(None, _PARSE_ERROR, "A message was not JSON.")


def _unfit(message: dict[str, Any]) -> str:
    return f"The parameters do not fit {message['method']}." if "method" in message else "The response does not fit."


def _converter() -> Converter:
    converter: Converter = default_converter()  # type: ignore[no-untyped-call]
    converter.register_structure_hook(JsonRPCRequestMessage, _plain_request)
    return converter


def _plain_request(raw: dict[str, Any], _: type) -> JsonRPCRequestMessage:
    """Requests of our own keep their parameters as they came; each handler checks them and says what is wrong."""
    return JsonRPCRequestMessage(raw["id"], raw["method"], raw["jsonrpc"], raw.get("params"))
