/** A probe for a script: a file of its own, not saved yet, with the script's loop in it. */

import * as path from "node:path";
import * as vscode from "vscode";
import type { Server } from "../server/client";
import { tell } from "./failures";
import { Nothing } from "./subjects";

export async function writeProbe(server: Server, clicked: vscode.Uri | undefined): Promise<void> {
  try {
    const uri = clicked ?? vscode.window.activeTextEditor?.document.uri;
    const document = uri && (await vscode.workspace.openTextDocument(uri));
    if (document?.languageId !== "python") throw new Nothing("Open a training script first.");
    const probe = await server.scaffold({ uri: document.uri.toString() });
    if (probe) await show(document.uri, probe.name, probe.text);
  } catch (error) {
    await tell(error, "write a probe");
  }
}

/** Beside the script, under a name that is free: saving it is the user's. */
async function show(script: vscode.Uri, name: string, text: string): Promise<void> {
  const target = await freeName(script, name);
  const document = await vscode.workspace.openTextDocument(target);
  if (!document.getText()) {
    const edit = new vscode.WorkspaceEdit();
    edit.insert(target, new vscode.Position(0, 0), text);
    await vscode.workspace.applyEdit(edit);
  }
  const editor = await vscode.window.showTextDocument(document, vscode.ViewColumn.Beside);
  const first = document.getText().indexOf("FILL IN", document.getText().indexOf('"""', 3));
  if (first < 0) return;
  const range = document.lineAt(document.positionAt(first).line).range;
  editor.selection = new vscode.Selection(range.start, range.end);
  editor.revealRange(range, vscode.TextEditorRevealType.InCenterIfOutsideViewport);
}

async function freeName(script: vscode.Uri, name: string): Promise<vscode.Uri> {
  const folder = script.scheme === "file" ? path.dirname(script.fsPath) : workspaceFolder();
  const stem = name.replace(/\.py$/, "");
  for (let number = 1; ; number++) {
    const file = path.join(folder, number === 1 ? name : `${stem}_${number}.py`);
    const uri = vscode.Uri.file(file).with({ scheme: "untitled" });
    const isOpen = vscode.workspace.textDocuments.some((each) => each.uri.toString() === uri.toString());
    if (!isOpen && !(await exists(vscode.Uri.file(file)))) return uri;
  }
}

function workspaceFolder(): string {
  return vscode.workspace.workspaceFolders?.[0]?.uri.fsPath ?? process.cwd();
}

async function exists(uri: vscode.Uri): Promise<boolean> {
  return vscode.workspace.fs.stat(uri).then(
    () => true,
    () => false,
  );
}
