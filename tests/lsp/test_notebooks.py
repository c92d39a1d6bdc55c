"""Notebooks in the editor: cells in their order are one script, and everything lands in the right cell."""

from typing import Any

import pytest

from lsp.client import PULLING, Client, running
from lsp.scripts import MEAN_OF_MEANS
from lsp.test_actions import applied, fix_of, ignore_of

NOTEBOOKS = {**PULLING, "notebookDocument": {"synchronization": {}}}
HEAD, LOOP = MEAN_OF_MEANS.split("\n\n\ndef fit(net, endless_batches, optimizer):\n")
LOOP = "".join(f"{line[4:]}\n" for line in LOOP.splitlines())
MAGIC = "%matplotlib inline\n!nvidia-smi\nnet, endless_batches, optimizer = build()"
EVERYWHERE = {"start": {"line": 0, "character": 0}, "end": {"line": 9999, "character": 0}}


class Editor:
    """A client with one notebook open."""

    def __init__(self, client: Client, *cells: str, name: str = "run.ipynb") -> None:
        self.client, self.uri, self.version = client, f"file:///p/{name}", 1
        self.cells = [self.cell(number) for number in range(len(cells))]
        self.texts = dict(zip(self.cells, cells, strict=True))
        self.shown: dict[str, list[dict[str, Any]]] = {}
        document = {"uri": self.uri, "notebookType": "jupyter-notebook", "version": 1, "cells": self.structure()}
        items = [self.item(uri) for uri in self.cells]
        client.notify("notebookDocument/didOpen", {"notebookDocument": document, "cellTextDocuments": items})

    def cell(self, number: int) -> str:
        return f"vscode-notebook-cell:{self.uri[5:]}#C{number}"

    def structure(self) -> list[dict[str, Any]]:
        return [{"kind": 2, "document": uri} for uri in self.cells]

    def item(self, uri: str) -> dict[str, Any]:
        return {"uri": uri, "languageId": "python", "version": 1, "text": self.texts[uri]}

    def change(self, cells: dict[str, Any]) -> None:
        self.version += 1
        document = {"uri": self.uri, "version": self.version}
        self.client.notify("notebookDocument/didChange", {"notebookDocument": document, "change": {"cells": cells}})

    def type(self, number: int, text: str) -> None:
        document = {"uri": self.cells[number], "version": self.version + 1}
        self.texts[self.cells[number]] = text
        self.change({"textContent": [{"document": document, "changes": [{"text": text}]}]})

    def diagnostics(self) -> list[list[str]]:
        """The codes that the next answer shows, cell by cell."""
        self.shown = {}
        while set(self.cells) - set(self.shown):
            published = self.client.notified("textDocument/publishDiagnostics")
            self.shown[published["uri"]] = published["diagnostics"]
        return [[each["code"] for each in self.shown[uri]] for uri in self.cells]

    def actions(self, number: int, **context: Any) -> list[dict[str, Any]]:
        return self.client.actions(self.cells[number], EVERYWHERE, **context)


@pytest.fixture
def client() -> Any:
    with running() as client:
        answer = client.initialize(NOTEBOOKS)
        (selector,) = answer["capabilities"]["notebookDocumentSync"]["notebookSelector"]
        assert selector == {"notebook": "*", "cells": [{"language": "python"}]}
        yield client


def test_a_finding_rests_on_all_cells_and_lands_in_its_own(client: Client) -> None:
    editor = Editor(client, HEAD, MAGIC, LOOP)
    assert editor.diagnostics() == [[], [], ["GA101"]]
    (item,) = editor.shown[editor.cells[2]]
    line = LOOP.splitlines()[item["range"]["start"]["line"]]
    assert line.strip() == "loss = loss / STEPS"
    assert {each["location"]["uri"] for each in item["relatedInformation"]} == {editor.cells[2]}


def test_related_places_lead_to_their_cells(client: Client) -> None:
    collate = "def collate(rows):\n    tags = pad(rows)\n    tags[tags == 0] = -100\n    return tags\n"
    editor = Editor(client, HEAD, collate, LOOP.replace("    tags[words == 0] = -100\n", ""))
    assert editor.diagnostics() == [[], [], ["GA101"]]
    (item,) = editor.shown[editor.cells[2]]
    places = [(each["location"]["uri"], each["location"]["range"]["start"]) for each in item["relatedInformation"]]
    assert places[0] == (editor.cells[1], {"line": 2, "character": 4})


def test_an_edit_in_one_cell_changes_another(client: Client) -> None:
    editor = Editor(client, HEAD, MAGIC, LOOP)
    assert editor.diagnostics()[2] == ["GA101"]
    editor.type(0, HEAD.replace("STEPS = 8", "STEPS = 1"))
    assert editor.diagnostics() == [[], [], []]
    editor.type(0, HEAD)
    assert editor.diagnostics()[2] == ["GA101"]


def test_a_half_typed_cell_keeps_the_findings_of_the_others(client: Client) -> None:
    editor = Editor(client, HEAD, MAGIC, LOOP)
    editor.diagnostics()
    editor.type(1, "net = build(")
    assert editor.diagnostics()[2] == ["GA101"]


def test_cells_that_move_come_and_go(client: Client) -> None:
    editor = Editor(client, HEAD, LOOP)
    assert editor.diagnostics() == [[], ["GA101"]]
    gone = editor.cells.pop()
    structure = {"array": {"start": 1, "deleteCount": 1}, "didClose": [{"uri": gone}]}
    editor.change({"structure": structure})
    assert editor.diagnostics() == [[]]
    assert editor.client.asked == [] or editor.shown.get(gone, []) == []
    editor.cells.append(editor.cell(7))
    editor.texts[editor.cell(7)] = LOOP
    array = {"start": 1, "deleteCount": 0, "cells": editor.structure()[1:]}
    editor.change({"structure": {"array": array, "didOpen": [editor.item(editor.cell(7))]}})
    assert editor.diagnostics() == [[], ["GA101"]]


@pytest.mark.parametrize("choose", [fix_of, ignore_of])
def test_a_fix_edits_the_cell_that_it_belongs_to(client: Client, choose: Any) -> None:
    editor = Editor(client, HEAD, MAGIC, LOOP)
    editor.diagnostics()
    assert editor.actions(0) == [] and editor.actions(1) == []
    (change,) = choose(editor.actions(2))["edit"]["documentChanges"]
    assert change["textDocument"] == {"uri": editor.cells[2], "version": 1}
    editor.type(2, applied(LOOP, change["edits"]))
    assert editor.diagnostics() == [[], [], []]


def close_of(editor: Editor) -> dict[str, Any]:
    return {"notebookDocument": {"uri": editor.uri}, "cellTextDocuments": [{"uri": uri} for uri in editor.cells]}


def test_fix_all_on_save_edits_one_cell_or_all(client: Client) -> None:
    second = LOOP.replace("loss", "other")
    editor = Editor(client, HEAD, LOOP, second)
    assert editor.diagnostics() == [[], ["GA101"], ["GA101"]]
    (action,) = editor.actions(1, only=["source.fixAll"])
    assert action["kind"] == "source.fixAll.firstfault"
    assert [each["textDocument"]["uri"] for each in action["edit"]["documentChanges"]] == [editor.cells[1]]
    (action,) = editor.actions(0, only=["notebook.source.fixAll"])
    changes = action["edit"]["documentChanges"]
    assert [each["textDocument"]["uri"] for each in changes] == editor.cells[1:]
    for number, change in enumerate(changes, 1):
        editor.type(number, applied(editor.texts[editor.cells[number]], change["edits"]))
        codes = editor.diagnostics()
    assert codes == [[], [], []]


def test_the_hover_of_a_cell_shows_the_page(client: Client) -> None:
    editor = Editor(client, HEAD, LOOP)
    editor.diagnostics()
    (item,) = editor.shown[editor.cells[1]]
    params = {"textDocument": {"uri": editor.cells[1]}, "position": item["range"]["start"]}
    assert "GA101 mean-of-means" in client.request("textDocument/hover", params)["contents"]["value"]


def test_a_closed_notebook_leaves_no_squiggle(client: Client) -> None:
    editor = Editor(client, HEAD, LOOP)
    assert editor.diagnostics()[1] == ["GA101"]
    client.notify("notebookDocument/didClose", close_of(editor))
    assert editor.diagnostics() == [[], []]


def test_settings_reach_notebooks(client: Client) -> None:
    editor = Editor(client, HEAD, LOOP)
    assert editor.diagnostics()[1] == ["GA101"]
    client.notify("workspace/didChangeConfiguration", {"settings": {"firstfault": {"check": {"enabled": False}}}})
    assert editor.diagnostics() == [[], []]
