// What the tests say about documents.
const vscode = require("vscode");

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Polls until `look` gives something true. */
exports.until = async (what, look, timeout = 60_000) => {
  for (const end = Date.now() + timeout; ; await sleep(30)) {
    const seen = await look();
    if (seen) return seen;
    if (Date.now() > end) throw new Error(`Waited ${timeout} ms for ${what}.`);
  }
};

exports.fileUri = (name) => vscode.Uri.joinPath(vscode.workspace.workspaceFolders[0].uri, name);

exports.open = async (name) => {
  const document = await vscode.workspace.openTextDocument(exports.fileUri(name));
  await vscode.window.showTextDocument(document);
  return document;
};

/** Closes every editor; texts that were never saved are dropped, where the editor would ask. */
exports.closeAll = async () => {
  for (const { document } of [...vscode.window.visibleTextEditors]) {
    if (!document.isDirty || document.uri.scheme === "vscode-notebook-cell") continue;
    await vscode.window.showTextDocument(document);
    await vscode.commands.executeCommand("workbench.action.revertAndCloseActiveEditor");
  }
  for (const { notebook } of [...vscode.window.visibleNotebookEditors]) {
    if (!notebook.isDirty) continue;
    await vscode.window.showNotebookDocument(notebook);
    await vscode.commands.executeCommand("workbench.action.revertAndCloseActiveEditor");
  }
  await vscode.commands.executeCommand("workbench.action.closeAllEditors");
};

/** The document's findings with code and line (from 1), once there are exactly this many. */
exports.codesOf = (document, count) => {
  const found = vscode.languages.getDiagnostics(document.uri);
  if (found.length !== count) return undefined;
  return found.map((diagnostic) => ({
    code: String(diagnostic.code?.value ?? diagnostic.code),
    line: diagnostic.range.start.line + 1,
    diagnostic,
  }));
};

exports.lineWith = (document, text) => document.positionAt(document.getText().indexOf(text)).line + 1;

/** Replaces the text in the open document, runs, and undoes it. */
exports.edited = async (document, text, other, run) => {
  const start = document.getText().indexOf(text);
  const edit = new vscode.WorkspaceEdit();
  edit.replace(
    document.uri,
    new vscode.Range(document.positionAt(start), document.positionAt(start + text.length)),
    other,
  );
  await vscode.workspace.applyEdit(edit);
  try {
    await run();
  } finally {
    await vscode.commands.executeCommand("undo");
  }
};
