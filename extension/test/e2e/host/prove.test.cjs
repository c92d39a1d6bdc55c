// Prove through the API: what needs no run.
const assert = require("node:assert/strict");
const vscode = require("vscode");
const { closeAll, codesOf, open, until } = require("./editor.cjs");

describe("Prove in the extension host", () => {
  afterEach(closeAll);

  it("writes a probe beside the script, and saves nothing", async () => {
    const script = await open("train.py");
    await vscode.commands.executeCommand("firstfault.writeProbe");
    const probe = vscode.window.activeTextEditor?.document;
    assert.ok(probe?.isUntitled, "the probe is no new document");
    assert.match(probe.uri.path, /\/train_probe\.py$/);
    assert.match(probe.getText(), /def accumulate\([\s\S]*ACCUMULATION_STEPS/);
    assert.equal(script.isDirty, false);
  });

  it("offers to prove each fix, beside it", async () => {
    const document = await open("train.py");
    const found = await until("two diagnostics", () => codesOf(document, 2));
    const { range } = found.find(({ code }) => code === "GA101").diagnostic;
    const actions = await vscode.commands.executeCommand("vscode.executeCodeActionProvider", document.uri, range);
    const ours = actions.filter(({ title }) => !title.startsWith("Ignore"));
    const fixes = ours.filter(({ edit }) => edit).map(({ title }) => title);
    const offers = ours.filter(({ command }) => command?.command === "firstfault.proveFix").map(({ title }) => title);
    assert.ok(fixes.length > 0);
    assert.deepEqual(
      offers,
      fixes.map((title) => `Prove this fix on a run: ${title}`),
    );
  });
});
