"""Diagnostics: pulled by clients that ask, pushed to those that do not, always for the text as it stands now.

Findings are not remembered, only what a measurement said of them (``verdicts.py``). A result id names all that goes
into them; while it stays the same so does the answer, and the client is told *unchanged* without linting again. A text
that does not parse is *unchanged* too, so that squiggles stay where they are while a line is being typed.
"""

import asyncio
import gc
import logging
import os
import sys
import time
from functools import cache
from hashlib import blake2b

from lsprotocol import types

from firstfault.lint.rule import Finding
from firstfault.lsp import convert, projects
from firstfault.lsp.documents import Document
from firstfault.lsp.notebooks import Notebook
from firstfault.lsp.protocol import SOURCE
from firstfault.lsp.wire import Server

logger = logging.getLogger(__name__)

OPTIONS = types.DiagnosticOptions(inter_file_dependencies=True, workspace_diagnostics=False, identifier=SOURCE)
# One cell of a notebook is no script: it is linted with the others, where the client tells of them.
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
    """What the rules find in the text that the user sees; None while it does not parse. Of a cell, what lies in it."""
    notebook = ls.notebooks.of(document)
    if notebook is not None:
        found = notebook_findings(ls, notebook)
        return None if found is None else [each for each in found if each.cell == notebook.index(document.uri)]
    return lint_again(ls, document, document.text) if _is_script(ls, document) else []


def notebook_findings(ls: Server, notebook: Notebook) -> list[Finding] | None:
    if not ls.settings.enabled:
        return []
    return _lint(ls, notebook.source(ls.documents), _notebook_path(ls, notebook), notebook.uri)


def lint_again(ls: Server, document: Document, text: str) -> list[Finding] | None:
    """What the rules find when ``text`` stands in the place of the document; of a cell, what lies in it."""
    notebook = ls.notebooks.of(document)
    if notebook is None:
        return _lint(ls, text, _path(document.uri, _root(ls, document.uri)), document.uri)
    source = notebook.source(ls.documents, {document.uri: text})
    found = _lint(ls, source, _notebook_path(ls, notebook), notebook.uri)
    return None if found is None else [each for each in found if each.cell == notebook.index(document.uri)]


def repaired(ls: Server, document: Document, whole_notebook: bool) -> dict[str, str]:
    """The text of each document that safe fixes change, by URI: this one, or every cell of its notebook."""
    from firstfault.lint.fixing import SAFE, fixed
    from firstfault.lint.notebook_file import sources

    notebook = ls.notebooks.of(document)
    if notebook is None:
        path = _path(document.uri, _root(ls, document.uri))
        after = fixed(document.text, path, lambda text: lint_again(ls, document, text), SAFE)
        return {document.uri: after.text} if after.text != document.text else {}
    path, cell = _notebook_path(ls, notebook), None if whole_notebook else notebook.index(document.uri)
    before = notebook.source(ls.documents)
    after = fixed(before, path, lambda source: _lint(ls, source, path, notebook.uri), SAFE, cell)
    texts = zip(notebook.cells, sources(before), sources(after.text), strict=True)
    return {each.document: new.text for each, old, new in texts if old and new and old.text != new.text}


def _lint(ls: Server, source: str, path: str, uri: str) -> list[Finding] | None:
    """With what a measurement of this very text has said of its findings."""
    found = unmeasured(ls, source, path, uri)
    if found is None:
        return None
    return ls.verdicts.told(path, source, found, projects.config(ls, path, _root(ls, uri)))


def unmeasured(ls: Server, source: str, path: str, uri: str) -> list[Finding] | None:
    warm_up()
    from firstfault.lint import lint
    from firstfault.lint.workspace import Workspace, active_environment

    root = _root(ls, uri)
    config = projects.config(ls, path, root)
    if config.leaves_out(path):
        return []
    # The editor starts the server with the interpreter that was chosen there, or the shell names another environment.
    environment = active_environment() or sys.prefix
    return lint(source, path, Workspace(root, _unsaved(ls), environment), config)


async def pull(ls: Server, params: types.DocumentDiagnosticParams) -> types.DocumentDiagnosticReport:
    document = ls.documents.get(params.text_document.uri)
    if document is None or ls.notebooks.of(document) is not None:
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
    """Lint when the messages that already wait are read, a large text after a pause; a newer change comes first.

    Cells are pushed to every client: one that pulls asks only for the cell that was edited, and what an edit means
    for the other cells would not be seen.
    """
    document, notebook = ls.documents.get(uri), ls.notebooks.get(uri)
    if notebook is None and (ls.pulls or document is None):
        return
    waiting = ls.waiting.pop(uri, None)
    if waiting is not None:
        waiting.cancel()
    is_large = document is not None and document.line_count > LARGE_LINES
    ls.waiting[uri] = asyncio.get_running_loop().call_later(LARGE_DELAY if is_large else 0, _push, ls, uri)


def clear(ls: Server, uri: str, is_cell: bool = False) -> None:
    if ls.pulls and not is_cell:
        return
    waiting = ls.waiting.pop(uri, None)
    if waiting is not None:
        waiting.cancel()
    ls.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=[]))


def refresh(ls: Server) -> None:
    """After a change of the settings: have every open document linted again."""
    for notebook in ls.notebooks:
        push_soon(ls, notebook.uri)
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
    document, notebook = ls.documents.get(uri), ls.notebooks.get(uri)
    try:
        if notebook is not None:
            _push_cells(ls, notebook)
        elif document is not None and ls.notebooks.of(document) is None:
            _publish(ls, document, _diagnostics(ls, document))
    except Exception:
        logger.exception("Could not check %s", uri)


def _push_cells(ls: Server, notebook: Notebook) -> None:
    found = notebook_findings(ls, notebook)
    if found is None:
        return
    for index, cell in enumerate(notebook.cells):
        document = ls.documents.get(cell.document)
        if document is not None:
            mine = [each for each in found if each.cell == index]
            _publish(ls, document, [convert.diagnostic(document, each, _cells(ls, document)) for each in mine])


def _publish(ls: Server, document: Document, items: list[types.Diagnostic] | None) -> None:
    if items is None:
        return
    params = types.PublishDiagnosticsParams(uri=document.uri, diagnostics=items, version=document.version)
    ls.text_document_publish_diagnostics(params)


def _cells(ls: Server, document: Document) -> convert.DocumentOf:
    """Where a place in another cell of the same notebook is found."""
    notebook = ls.notebooks.of(document)

    def of(cell: int | None) -> Document:
        known = notebook is not None and cell is not None and cell < len(notebook.cells)
        found = ls.documents.get(notebook.cells[cell].document) if known else None  # type: ignore[union-attr, index]
        return found or document

    return of


def _diagnostics(ls: Server, document: Document) -> list[types.Diagnostic] | None:
    started = time.perf_counter()
    found = findings(ls, document)
    if found is None:
        return None
    logger.debug("%s: %d findings in %.1f ms", document.uri, len(found), (time.perf_counter() - started) * 1e3)
    return [convert.diagnostic(document, each, lambda _: document) for each in found]


def _is_script(ls: Server, document: Document) -> bool:
    if not ls.settings.enabled or document.language != "python" or len(document.text) > LARGEST:
        return False
    return convert.scheme_of(document.uri) in SCHEMES


def _root(ls: Server, uri: str) -> str | None:
    """The workspace folder that holds the document, the innermost where folders lie in one another."""
    folders = [convert.path_of(folder.uri) for folder in ls.workspace.folders.values()]
    known = sorted((each for each in [*folders, ls.workspace.root_path] if each), key=len)
    path = convert.path_of(uri)
    if path is None:
        return known[0] if known else None  # Never saved: it will most likely lie there.
    holding = [each for each in known if path.startswith(each.rstrip("/\\") + os.sep)]
    return holding[-1] if holding else None


def _path(uri: str, root: str | None) -> str:
    """The document's path; one that was never saved gets a path where its imports are looked for, if anywhere."""
    return convert.path_of(uri) or os.path.join(root or NOWHERE, convert.name_of(uri))


def _notebook_path(ls: Server, notebook: Notebook) -> str:
    path = _path(notebook.uri, _root(ls, notebook.uri))
    return path if path.endswith(".ipynb") else f"{path}.ipynb"  # an interactive window, one that was never saved


def _unsaved(ls: Server) -> dict[str, str]:
    """What the user sees of other files stands before what is on disk."""
    paths = ((convert.path_of(each.uri), each.text) for each in ls.documents if each.language == "python")
    return {path: text for path, text in paths if path is not None}


def _result_id(ls: Server, document: Document) -> str:
    """Names all that the answer depends on: the text, the settings, and the other files as far as they are known."""
    others = [f"{each.uri} {each.version}" for each in ls.documents if each is not document]
    path = _path(document.uri, _root(ls, document.uri))
    state = [ls.version, document.uri, document.language, repr(ls.settings), projects.state(path)]
    state += [str(ls.files_changed), str(ls.verdicts.revision), *others, document.text]
    return blake2b("\n".join(state).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
