"""Diagnostics: pulled by clients that ask, pushed to those that do not, always for the text as it stands now.

Findings are not remembered. A result id names all that goes into them; while it stays the same so does the answer,
and the client is told *unchanged* without linting again. A text that does not parse is *unchanged* too, so that
squiggles stay where they are while a line is being typed.
"""

import asyncio
import gc
import logging
import os
import time
from functools import cache
from hashlib import blake2b

from lsprotocol import types

from firstfault.lint.rule import Finding
from firstfault.lsp import convert
from firstfault.lsp.documents import Document
from firstfault.lsp.protocol import SOURCE
from firstfault.lsp.wire import Server

logger = logging.getLogger(__name__)

OPTIONS = types.DiagnosticOptions(inter_file_dependencies=True, workspace_diagnostics=False, identifier=SOURCE)
# One cell of a notebook is not a script: its loop may be fed by another cell. Rather no finding than a false one.
SCHEMES = frozenset(("file", "untitled", "vscode-remote", "vscode-vfs"))
LARGE_LINES = 5_000
LARGE_DELAY = 0.2
NOWHERE = os.path.join("untitled:", "nowhere")  # No folder has this name, so no module is found in it.
LARGEST = 4_000_000  # Characters. Nobody wrote such a script by hand, and it would block the server for seconds.


def touches(document: Document, finding: Finding, start: int, end: int) -> bool:
    """Whether the finding and the offsets from ``start`` to ``end`` have a place in common."""
    placed = document.range(finding.span)
    return document.offset(placed.start) <= end and start <= document.offset(placed.end)


def findings(ls: Server, document: Document) -> list[Finding] | None:
    """What the rules find in the text that the user sees; None while it does not parse."""
    if not _is_script(ls, document):
        return []
    found = lint_again(ls, document, document.text)
    if found is None:
        return None
    return [each for each in found if _is_shown(ls, each)]


def lint_again(ls: Server, document: Document, text: str) -> list[Finding] | None:
    """What the rules find when ``text`` stands in the place of the document."""
    warm_up()
    from firstfault.lint import lint
    from firstfault.lint.workspace import Workspace

    root = _root(ls, document)
    return lint(text, _path(document, root), Workspace(root, _unsaved(ls)))


async def pull(ls: Server, params: types.DocumentDiagnosticParams) -> types.DocumentDiagnosticReport:
    document = ls.documents.get(params.text_document.uri)
    if document is None:
        return types.RelatedFullDocumentDiagnosticReport(items=[])
    if document.line_count > LARGE_LINES:
        await asyncio.sleep(LARGE_DELAY)  # The text may change meanwhile; what is linted then is the newest.
    result_id = _result_id(ls, document)
    if params.previous_result_id == result_id:
        return types.RelatedUnchangedDocumentDiagnosticReport(result_id=result_id)
    items = _diagnostics(ls, document)
    if items is None and params.previous_result_id is not None:
        return types.RelatedUnchangedDocumentDiagnosticReport(result_id=params.previous_result_id)
    # Without an id the next pull cannot take this empty answer for the one of a text that parses.
    return types.RelatedFullDocumentDiagnosticReport(
        items=items or [], result_id=result_id if items is not None else None
    )


def push_soon(ls: Server, uri: str) -> None:
    """Lint when the messages that already wait are read, a large text after a pause; a newer change comes first."""
    if ls.pulls:
        return
    document = ls.documents.get(uri)
    if document is None:
        return
    waiting = ls.waiting.pop(uri, None)
    if waiting is not None:
        waiting.cancel()
    delay = LARGE_DELAY if document.line_count > LARGE_LINES else 0
    ls.waiting[uri] = asyncio.get_running_loop().call_later(delay, _push, ls, uri)


def clear(ls: Server, uri: str) -> None:
    if ls.pulls:
        return
    waiting = ls.waiting.pop(uri, None)
    if waiting is not None:
        waiting.cancel()
    ls.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=[]))


def refresh(ls: Server) -> None:
    """After a change of the settings: have every open document linted again."""
    if not ls.pulls:
        for document in ls.documents:
            push_soon(ls, document.uri)
        return
    workspace_capabilities = ls.client_capabilities.workspace
    diagnostics = workspace_capabilities.diagnostics if workspace_capabilities else None
    if diagnostics is not None and diagnostics.refresh_support:
        ls.workspace_diagnostic_refresh(None)


@cache
def warm_up() -> None:
    """Load the rules, then let the garbage collector work again, but never on what has been loaded by now."""
    from firstfault.lint import lint
    from firstfault.lint.workspace import Workspace

    lint("loss.backward()\n", "warm_up.py", Workspace(None))
    gc.freeze()
    gc.enable()


def _push(ls: Server, uri: str) -> None:
    ls.waiting.pop(uri, None)
    document = ls.documents.get(uri)
    if document is None:
        return
    try:
        items = _diagnostics(ls, document)
    except Exception:
        logger.exception("Could not check %s", uri)
        return
    if items is None:
        return
    ls.text_document_publish_diagnostics(
        types.PublishDiagnosticsParams(uri=uri, diagnostics=items, version=document.version)
    )


def _diagnostics(ls: Server, document: Document) -> list[types.Diagnostic] | None:
    started = time.perf_counter()
    found = findings(ls, document)
    if found is None:
        return None
    logger.debug("%s: %d findings in %.1f ms", document.uri, len(found), (time.perf_counter() - started) * 1e3)
    return [convert.diagnostic(document, each) for each in found]


def _is_script(ls: Server, document: Document) -> bool:
    if not ls.settings.enabled or document.language != "python" or len(document.text) > LARGEST:
        return False
    return convert.scheme_of(document.uri) in SCHEMES


def _is_shown(ls: Server, finding: Finding) -> bool:
    """A half-typed line is the Python extension's business: the editor already marks it."""
    return finding.code != "syntax-error" and ls.settings.allows(finding.code, finding.name)


def _root(ls: Server, document: Document) -> str | None:
    """The workspace folder that holds the document, the innermost where folders lie in one another."""
    folders = [convert.path_of(folder.uri) for folder in ls.workspace.folders.values()]
    known = sorted((each for each in [*folders, ls.workspace.root_path] if each), key=len)
    path = convert.path_of(document.uri)
    if path is None:
        return known[0] if known else None  # Never saved: it will most likely lie there.
    holding = [each for each in known if path.startswith(each.rstrip("/\\") + os.sep)]
    return holding[-1] if holding else None


def _path(document: Document, root: str | None) -> str:
    """The document's path; one that was never saved gets a path where its imports are looked for, if anywhere."""
    return convert.path_of(document.uri) or os.path.join(root or NOWHERE, convert.name_of(document.uri))


def _unsaved(ls: Server) -> dict[str, str]:
    """What the user sees of other files stands before what is on disk."""
    paths = ((convert.path_of(each.uri), each.text) for each in ls.documents if each.language == "python")
    return {path: text for path, text in paths if path is not None}


def _result_id(ls: Server, document: Document) -> str:
    """Names all that the answer depends on: the text, the settings, and the other files as far as they are known."""
    others = [f"{each.uri} {each.version}" for each in ls.documents if each is not document]
    state = [ls.version, document.uri, document.language, repr(sorted(ls.settings.disabled_rules))]
    state += [str(ls.settings.enabled), str(ls.files_changed), *others, document.text]
    return blake2b("\n".join(state).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
