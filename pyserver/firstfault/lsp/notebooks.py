"""Open notebooks: which cells they have, in which order, kept in step with the editor.

The texts of the cells are documents like any other, under their own URIs (``documents``).
"""

import json
from collections.abc import Iterator

from lsprotocol import types

from firstfault.lsp.documents import Document, Documents

LANGUAGE = "python"
SYNC = types.NotebookDocumentSyncOptions(
    notebook_selector=[
        types.NotebookDocumentFilterWithNotebook(notebook="*", cells=[types.NotebookCellLanguage(language=LANGUAGE)])
    ]
)


class Notebook:
    """One open notebook at one version."""

    def __init__(self, document: types.NotebookDocument) -> None:
        self.uri = document.uri
        self.version = document.version
        self.cells = list(document.cells)

    def index(self, cell_uri: str) -> int | None:
        return next((index for index, cell in enumerate(self.cells) if cell.document == cell_uri), None)

    def source(self, documents: Documents, instead: dict[str, str] | None = None) -> str:
        """The notebook as a file would say it: what is Python, in order; ``instead`` has other texts for some cells."""
        cells = [self._cell(documents.get(cell.document), cell, instead or {}) for cell in self.cells]
        return json.dumps({"cells": cells})

    def _cell(self, document: Document | None, cell: types.NotebookCell, instead: dict[str, str]) -> dict[str, object]:
        is_code = cell.kind == types.NotebookCellKind.Code
        if document is None or not is_code or document.language != LANGUAGE:
            return {"cell_type": "raw", "source": ""}
        return {"cell_type": "code", "source": instead.get(document.uri, document.text)}


class Notebooks:
    """The open notebooks by their URI, and by the URIs of their cells."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._open: dict[str, Notebook] = {}

    def __iter__(self) -> Iterator[Notebook]:
        return iter(list(self._open.values()))

    def get(self, uri: str) -> Notebook | None:
        return self._open.get(uri)

    def of(self, document: Document) -> Notebook | None:
        """The notebook that a document is a cell of."""
        return next((each for each in self._open.values() if each.index(document.uri) is not None), None)

    def open(self, params: types.DidOpenNotebookDocumentParams) -> None:
        for item in params.cell_text_documents:
            self._documents.open(item)
        self._open[params.notebook_document.uri] = Notebook(params.notebook_document)

    def change(self, params: types.DidChangeNotebookDocumentParams) -> list[str]:
        """Follow a change; the answer is the URIs of the cells that are gone."""
        notebook = self._open.get(params.notebook_document.uri)
        if notebook is None:
            return []
        notebook.version = params.notebook_document.version
        cells = params.change.cells
        gone = self._restructure(notebook, cells.structure) if cells is not None and cells.structure else []
        for changed in (cells.data or []) if cells is not None else []:
            at = notebook.index(changed.document)
            if at is not None:
                notebook.cells[at] = changed
        for content in (cells.text_content or []) if cells is not None else []:
            document = types.VersionedTextDocumentIdentifier(content.document.version, content.document.uri)
            self._documents.change(types.DidChangeTextDocumentParams(document, list(content.changes)))
        return gone

    def close(self, params: types.DidCloseNotebookDocumentParams) -> list[str]:
        """The answer is the URIs of the cells that are gone."""
        self._open.pop(params.notebook_document.uri, None)
        gone = [each.uri for each in params.cell_text_documents]
        for uri in gone:
            self._documents.close(uri)
        return gone

    def _restructure(self, notebook: Notebook, structure: types.NotebookDocumentCellChangeStructure) -> list[str]:
        change = structure.array
        notebook.cells[change.start : change.start + change.delete_count] = list(change.cells or [])
        for item in structure.did_open or []:
            self._documents.open(item)
        gone = [each.uri for each in structure.did_close or [] if notebook.index(each.uri) is None]
        for uri in gone:
            self._documents.close(uri)
        return gone
