"""The language server on standard input and output.

Importing the protocol's types is most of the start. The garbage collector is off until the first quiet moment after
it (``linting.warm_up``), because it would walk all those classes again and again; the rules load in that moment too.
"""

import gc
import logging
import os
import sys
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from firstfault.lsp.wire import Server


def serve() -> int:
    """Serve until the client says ``exit``, closes the pipe or dies. Returns the exit status."""
    gc.disable()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    _leave_the_working_folder()
    stdout = _own_stdout()
    server = build()
    try:
        server.start_io(sys.stdin.buffer, stdout)
    finally:
        server.end_runs()
    return 0


def _leave_the_working_folder() -> None:
    """`python -m` looks for modules in the folder it is started in first: a user's `json.py` would be run as ours."""
    here, home = os.getcwd(), os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if here != home:
        sys.path[:] = [each for each in sys.path if each not in ("", ".", here)]


def build() -> "Server":
    from lsprotocol import types

    import firstfault
    from firstfault.lsp import (
        actions,
        configuring,
        diagnosing,
        explaining,
        fix_proving,
        linting,
        progress,
        protocol,
        proving,
    )
    from firstfault.lsp.wire import Server

    server = Server(firstfault.__version__)
    server.feature(types.INITIALIZE)(configuring.initialize)
    server.feature(types.INITIALIZED)(configuring.initialized)
    server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)(configuring.changed)
    server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)(configuring.files_changed)
    server.feature(types.TEXT_DOCUMENT_DIAGNOSTIC, linting.OPTIONS)(linting.pull)
    server.feature(types.TEXT_DOCUMENT_CODE_ACTION, actions.OPTIONS)(actions.code_actions)
    server.feature(types.TEXT_DOCUMENT_HOVER)(explaining.hover)
    server.feature(types.WINDOW_WORK_DONE_PROGRESS_CANCEL)(progress.cancel)
    server.feature(protocol.DIAGNOSE)(diagnosing.diagnose)
    server.feature(protocol.EXPLAIN)(explaining.explain)
    server.feature(protocol.MEASURE)(proving.measure)
    server.feature(protocol.PROVE_FIX)(fix_proving.prove_fix)
    server.feature(protocol.SCAFFOLD)(proving.scaffold)
    return server


def _own_stdout() -> BinaryIO:
    """A file for the protocol alone: what anything else prints goes to the log, where it cannot spoil a message."""
    protocol = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return protocol
