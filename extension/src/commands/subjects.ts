/** What each command diagnoses. A subject, or a message for the user where there is nothing to diagnose. */

import * as path from "node:path";
import * as vscode from "vscode";
import type { Documents } from "../documents";
import type { Subject } from "../report/subject";

/** Says why a command has nothing to work on, and offers commands that may help. */
export class Nothing extends Error {
  constructor(
    message: string,
    readonly offers: { title: string; command: string }[] = [],
  ) {
    super(message);
  }
}

export function ofSelection(): Subject {
  const editor = vscode.window.activeTextEditor;
  if (!editor || editor.selection.isEmpty) {
    throw new Nothing("Select a traceback or a piece of a log in the editor first.", [
      { title: "Diagnose File", command: "firstfault.diagnoseFile" },
    ]);
  }
  const { document, selection } = editor;
  if (isAsOnDisk(document) && selection.contains(wholeOf(document))) return ofPaths([document.uri]);
  return {
    title: `${vscode.workspace.asRelativePath(document.uri)}, lines ${selection.start.line + 1}–${selection.end.line + 1}`,
    params: { text: document.getText(selection), name: nameOf(document) },
    text: { uri: document.uri, firstLine: selection.start.line },
    column: columnOf(editor),
    notes: [],
  };
}

/** Files by their paths, which the server reads; the text itself only where it is not on disk as it is shown. */
export function ofFile(clicked: vscode.Uri | undefined, selected: readonly vscode.Uri[] | undefined): Subject {
  if (selected && selected.length > 1) return ofPaths(selected);
  const uri = clicked ?? activeUri();
  if (!uri) throw new Nothing("Open a log file first, or choose one in the explorer.");
  const document = vscode.workspace.textDocuments.find((each) => each.uri.toString() === uri.toString());
  return document && !isAsOnDisk(document) ? ofDocument(document) : ofPaths([uri]);
}

export async function ofFolder(
  clicked: vscode.Uri | undefined,
  selected: readonly vscode.Uri[] | undefined,
): Promise<Subject> {
  if (selected?.length) return ofPaths(selected);
  if (clicked) return ofPaths([clicked]);
  const chosen = await vscode.window.showOpenDialog({
    canSelectFiles: false,
    canSelectFolders: true,
    openLabel: "Diagnose",
    title: "A folder of logs, one job",
  });
  if (!chosen?.length) throw new vscode.CancellationError();
  return ofPaths(chosen);
}

export async function ofClipboard(documents: Documents): Promise<Subject> {
  const text = await vscode.env.clipboard.readText();
  if (!text.trim()) throw new Nothing("The clipboard holds no text.");
  return ofText(documents, "clipboard", "Clipboard", text.replace(/\r\n/g, "\n"));
}

export function ofExample(file: vscode.Uri): Subject {
  return { ...ofPaths([file]), title: "Example log" };
}

/** A text that is no document yet becomes one, so that its lines can be opened. */
export function ofText(documents: Documents, name: string, title: string, text: string, notes: string[] = []): Subject {
  const uri = documents.add(`${title}.log`, text);
  const column = vscode.window.activeTextEditor?.viewColumn ?? vscode.ViewColumn.One;
  return { title, params: { text, name }, text: { uri, firstLine: 0 }, column, notes };
}

function ofDocument(document: vscode.TextDocument): Subject {
  return {
    title: vscode.workspace.asRelativePath(document.uri),
    params: { text: document.getText(), name: nameOf(document) },
    text: { uri: document.uri, firstLine: 0 },
    column: vscode.window.activeTextEditor?.viewColumn ?? vscode.ViewColumn.One,
    notes:
      document.isDirty && !document.isUntitled ? ["Read as it stands in the editor, with changes not saved yet."] : [],
  };
}

function ofPaths(uris: readonly vscode.Uri[]): Subject {
  const other = uris.find((each) => each.scheme !== "file");
  if (other) throw new Nothing(`${other.toString(true)} is not a file on this machine.`);
  const names = uris.map((each) => vscode.workspace.asRelativePath(each));
  return {
    title: names.length > 3 ? `${names.slice(0, 2).join(", ")} and ${names.length - 2} more` : names.join(", "),
    params: { paths: uris.map((each) => each.fsPath) },
    column: vscode.window.activeTextEditor?.viewColumn ?? vscode.ViewColumn.One,
    notes: [],
  };
}

/** Then its path says all; the text need not be sent. */
function isAsOnDisk(document: vscode.TextDocument): boolean {
  return document.uri.scheme === "file" && !document.isDirty;
}

function wholeOf(document: vscode.TextDocument): vscode.Range {
  return new vscode.Range(new vscode.Position(0, 0), document.lineAt(document.lineCount - 1).range.end);
}

/** Of the tab, not of the text editor: the editor shows extensions no file above 50 MB. */
function activeUri(): vscode.Uri | undefined {
  const input = vscode.window.tabGroups.activeTabGroup.activeTab?.input;
  return input instanceof vscode.TabInputText ? input.uri : vscode.window.activeTextEditor?.document.uri;
}

function nameOf(document: vscode.TextDocument): string {
  return document.uri.scheme === "file" ? document.uri.fsPath : path.posix.basename(document.uri.path);
}

function columnOf(editor: vscode.TextEditor): vscode.ViewColumn {
  return editor.viewColumn ?? vscode.ViewColumn.One;
}
