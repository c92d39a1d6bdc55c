// Check in notebooks, through the API: squiggles and fixes in the cells that they belong to.
const assert = require("node:assert/strict");
const vscode = require("vscode");
const { closeAll, codesOf, fileUri, until } = require("./editor.cjs");

describe("Check in a notebook", () => {
  afterEach(closeAll);

  it("marks the faults of the example in their cells", async () => {
    const cells = await codeCells();
    const [model, loop] = await faultyCells(cells);
    assert.ok(model.getText().includes("BatchNorm1d"));
    assert.ok(loop.getText().includes("loss / ACCUMULATION_STEPS"));
    const [{ diagnostic }] = codesOf(loop, 1);
    assert.equal(diagnostic.severity, vscode.DiagnosticSeverity.Error);
    assert.equal(loop.getText(diagnostic.range), "loss / ACCUMULATION_STEPS");
  });

  it("follows what is typed in another cell", async () => {
    const cells = await codeCells();
    const [, loop] = await faultyCells(cells);
    const settings = cells.find((cell) => /^ACCUMULATION_STEPS = \d+/m.test(cell.getText()));
    const one = settings.getText().replace(/^ACCUMULATION_STEPS = \d+/m, "ACCUMULATION_STEPS = 1");
    await restored(settings, async () => {
      await write(settings, one);
      await until("no finding in the loop", () => vscode.languages.getDiagnostics(loop.uri).length === 0);
    });
    await until("the finding again", () => codesOf(loop, 1));
  });

  it("shows the page over a finding", async () => {
    const [, loop] = await faultyCells(await codeCells());
    const [{ diagnostic }] = codesOf(loop, 1);
    const hovers = await vscode.commands.executeCommand(
      "vscode.executeHoverProvider",
      loop.uri,
      diagnostic.range.start,
    );
    assert.ok(hovers.some(({ contents }) => contents.some((each) => String(each.value).includes("GA101"))));
  });

  for (const kind of [vscode.CodeActionKind.QuickFix.value, "source.fixAll.firstfault"]) {
    it(`repairs a cell by ${kind}`, async () => {
      const [, loop] = await faultyCells(await codeCells());
      const [fix] = await actions(loop, codesOf(loop, 1)[0].diagnostic.range, kind);
      assert.equal(fix.kind.value, kind);
      await restored(loop, async () => {
        assert.ok(await vscode.workspace.applyEdit(fix.edit));
        assert.ok(loop.getText().includes("micro_tokens"));
        await until("the finding to go", () => vscode.languages.getDiagnostics(loop.uri).length === 0);
      });
    });
  }
});

/** Closing a notebook keeps what was changed in it: the cell gets its text back. */
async function restored(document, run) {
  const before = document.getText();
  try {
    await run();
  } finally {
    await write(document, before);
  }
}

async function write(document, text) {
  const edit = new vscode.WorkspaceEdit();
  edit.replace(document.uri, new vscode.Range(0, 0, document.lineCount, 0), text);
  assert.ok(await vscode.workspace.applyEdit(edit));
}

async function codeCells() {
  const notebook = await vscode.workspace.openNotebookDocument(fileUri("notebook.ipynb"));
  await vscode.window.showNotebookDocument(notebook);
  return notebook
    .getCells()
    .filter((cell) => cell.kind === vscode.NotebookCellKind.Code)
    .map((cell) => cell.document);
}

async function faultyCells(cells) {
  const found = () => ["BN501", "GA101"].map((code) => cells.find((cell) => codesOf(cell, 1)?.[0].code === code));
  return until("both findings", () => (found().every(Boolean) ? found() : undefined));
}

/** The editor asks for actions in cells that it has drawn; the others have no text model yet. */
async function actions(document, range, kind) {
  const cell = vscode.window.activeNotebookEditor.notebook.getCells().find((each) => each.document === document);
  const place = new vscode.NotebookRange(cell.index, cell.index + 1);
  vscode.window.activeNotebookEditor.revealRange(place, vscode.NotebookEditorRevealType.AtTop);
  const ask = () => vscode.commands.executeCommand("vscode.executeCodeActionProvider", document.uri, range, kind);
  const found = await until("the cell to be drawn", () => ask().then(undefined, () => undefined));
  return found.filter((each) => each.edit);
}
