// Diagnose through the API: the panel beside the source, and the entry in Problems at the user's own frame.
const assert = require("node:assert/strict");
const { writeFileSync } = require("node:fs");
const vscode = require("vscode");
const { closeAll, fileUri, lineWith, open, until } = require("./editor.cjs");

const FAULT = "LABELS[self.kinds[index]]";

describe("Diagnose in the extension host", () => {
  afterEach(async () => {
    await closeAll();
    await until("no entry", () => !problemIn("ddp_fault.py"));
  });

  it("opens the report beside the log and leaves the focus there", async () => {
    const log = await open("run.log");
    run("firstfault.diagnoseFile");
    const [tab, group] = await until("the panel", reportTab);
    assert.equal(tab.label, "Firstfault");
    assert.equal(group.viewColumn, vscode.ViewColumn.Two);
    assert.equal(vscode.window.activeTextEditor?.document, log);
  });

  it("enters the failure in Problems, at the user's frame, with the line of the log", async () => {
    const log = await open("run.log");
    run("firstfault.diagnoseFile", log.uri);
    const problem = await until("the entry", () => problemIn("ddp_fault.py"));
    const script = await vscode.workspace.openTextDocument(fileUri("ddp_fault.py"));
    assert.match(problem.message, /KeyError: .?'laughter'/);
    assert.equal(problem.range.start.line + 1, lineWith(script, FAULT));
    const [{ location }] = problem.relatedInformation;
    assert.equal(location.uri.toString(), log.uri.toString());
    assert.match(log.lineAt(location.range.start.line).text, /\[rank2\]/);
  });

  it("takes a folder of rank logs as one job", async () => {
    run("firstfault.diagnoseFolder", fileUri("logs"));
    const problem = await until("the entry", () => problemIn("ddp_fault.py"));
    assert.match(problem.message, /KeyError/);
    assert.match(problem.relatedInformation[0].location.uri.path, /\/logs\/.*\b2\b/);
  });

  it("cites lines of a selection as lines of the document, which need not be saved", async () => {
    const whole = (await open("run.log")).getText();
    const document = await vscode.workspace.openTextDocument({ content: whole });
    const editor = await vscode.window.showTextDocument(document);
    const first = lineWith(document, "[rank2]: Traceback") - 1;
    const last = lineWith(document, "KeyError") - 1;
    editor.selection = new vscode.Selection(first, 0, last, 1000);
    run("firstfault.diagnoseSelection");
    const problem = await until("the entry", () => problemIn("ddp_fault.py"));
    const [{ location }] = problem.relatedInformation;
    assert.equal(location.uri.toString(), document.uri.toString());
    assert.ok(
      location.range.start.line >= first && location.range.start.line <= last,
      `line ${location.range.start.line}`,
    );
  });

  it("finds the editor's line behind a progress bar, which the editor breaks at each carriage return", async () => {
    const whole = (await open("run.log")).getText();
    const bar = Array.from({ length: 40 }, (_, step) => `\r ${step}/40 batches`).join("");
    writeFileSync(fileUri("bar.log").fsPath, `start${bar}\n${whole}`);
    const log = await open("bar.log");
    run("firstfault.diagnoseFile");
    const problem = await until("the entry", () => problemIn("ddp_fault.py"));
    const { line } = problem.relatedInformation[0].location.range.start;
    assert.match(log.lineAt(line).text, /\[rank2\]/);
  });

  it("diagnoses the clipboard and leaves it as it was", async () => {
    const text = (await open("run.log")).getText();
    await vscode.env.clipboard.writeText(text);
    run("firstfault.diagnoseClipboard");
    await until("the entry", () => problemIn("ddp_fault.py"));
    assert.equal(await vscode.env.clipboard.readText(), text);
  });

  it("takes the entry away with the panel", async () => {
    run("firstfault.diagnoseFile", fileUri("run.log"));
    const [tab] = await until("the panel", reportTab);
    await until("the entry", () => problemIn("ddp_fault.py"));
    await vscode.window.tabGroups.close(tab);
    await until("no entry", () => !problemIn("ddp_fault.py"));
  });

  it("answers after the server was restarted", async () => {
    await vscode.commands.executeCommand("firstfault.restartServer");
    run("firstfault.diagnoseFile", fileUri("run.log"));
    await until("the entry", () => problemIn("ddp_fault.py"));
  });
});

/** Not awaited: a command that has something to say ends when the user has answered. */
const run = (command, ...given) => void vscode.commands.executeCommand(command, ...given);

function reportTab() {
  for (const group of vscode.window.tabGroups.all) {
    const tab = group.tabs.find(({ input }) => /firstfault\.report$/.test(input?.viewType ?? ""));
    if (tab) return [tab, group];
  }
  return undefined;
}

const problemIn = (file) =>
  vscode.languages.getDiagnostics(fileUri(file)).find(({ source }) => source === "Firstfault");
