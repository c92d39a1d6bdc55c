// Check through the API: what reaches the editor's diagnostics and code actions.
const assert = require("node:assert/strict");
const vscode = require("vscode");
const { closeAll, codesOf, edited, lineWith, open, until } = require("./editor.cjs");

const MEAN = "loss = loss / ACCUMULATION_STEPS";

describe("Check in the extension host", () => {
  afterEach(closeAll);

  it("is active once a window is open, without an error", async () => {
    const extension = vscode.extensions.getExtension("firstfault.firstfault");
    assert.ok(extension, "the package is not installed");
    await until("activation", () => extension.isActive);
  });

  it("marks the examples' two faults, each at its own words", async () => {
    const document = await open("train.py");
    const found = await until("two diagnostics", () => codesOf(document, 2));
    assert.deepEqual(found.map(({ code }) => code).sort(), ["BN501", "GA101"]);
    const at = Object.fromEntries(found.map(({ code, line }) => [code, line]));
    assert.equal(at.GA101, lineWith(document, MEAN));
    assert.equal(at.BN501, lineWith(document, "nn.BatchNorm1d(64)"));
    for (const { diagnostic } of found) assert.equal(diagnostic.source, "firstfault");
  });

  it("follows the text while it is typed, before it is saved", async () => {
    const document = await open("train.py");
    await until("two diagnostics", () => codesOf(document, 2));
    // Without the division the loss is not divided at all, which is another rule's finding.
    await edited(document, MEAN, "loss = loss", async () => {
      await until("GA102 in place of GA101", () => codes(document).join() === "BN501,GA102");
    });
    await until("both again", () => codes(document).join() === "BN501,GA101");
  });

  it("marks an untitled document", async () => {
    const content = (await open("train.py")).getText();
    const document = await vscode.workspace.openTextDocument({ language: "python", content });
    await vscode.window.showTextDocument(document);
    await until("two diagnostics", () => codesOf(document, 2));
  });

  it("leaves a script without faults alone", async () => {
    const document = await open("crash.py");
    const other = await open("train.py");
    await until("the faulty file's diagnostics", () => codesOf(other, 2));
    assert.deepEqual(vscode.languages.getDiagnostics(document.uri), []);
  });

  it("offers fixes that change the document, and the finding goes", async () => {
    const document = await open("train.py");
    const found = await until("two diagnostics", () => codesOf(document, 2));
    for (const { code, diagnostic } of found) {
      // Squiggles of the document that was closed before may still stand when the server has not seen this one yet.
      const fix = await until(`a fix for ${code}`, async () =>
        (await actionsAt(document, diagnostic)).find((each) => each.edit),
      );
      const before = document.getText();
      assert.ok(await vscode.workspace.applyEdit(fix.edit));
      assert.notEqual(document.getText(), before);
      await until(`${code} to go`, () => codesOf(document, 1)?.every((each) => each.code !== code));
      await vscode.commands.executeCommand("undo");
      await until("both again", () => codesOf(document, 2));
      assert.equal(document.getText(), before);
    }
  });
});

function codes(document) {
  return (codesOf(document, 2) ?? []).map(({ code }) => code).sort();
}

function actionsAt(document, { range }) {
  return vscode.commands.executeCommand(
    "vscode.executeCodeActionProvider",
    document.uri,
    range,
    vscode.CodeActionKind.QuickFix.value,
  );
}
