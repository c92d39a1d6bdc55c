/** The page of a failure or a rule, in the editor's own Markdown preview. */

import * as vscode from "vscode";
import type { Documents } from "../documents";
import { messageOf, type Server } from "../server/client";

export async function explain(server: Server, documents: Documents, given: unknown): Promise<void> {
  const id = typeof given === "string" ? given : await askForId();
  if (!id?.trim()) return;
  try {
    const page = await server.explain({ id: id.trim() });
    if (page)
      await vscode.commands.executeCommand("markdown.showPreview", documents.add(`${id.trim()}.md`, page.markdown));
  } catch (error) {
    void vscode.window.showErrorMessage(messageOf(error));
  }
}

function askForId(): Thenable<string | undefined> {
  return vscode.window.showInputBox({
    title: "Explain Failure or Rule",
    prompt: "The id of a failure, or the code or name of a rule",
    placeHolder: "cuda-oom, GA101 or mean-of-means",
    value: codeAtCaret(),
  });
}

/** The code of the finding under the caret, which is what one most likely wants explained. */
function codeAtCaret(): string {
  const editor = vscode.window.activeTextEditor;
  if (!editor) return "";
  const here = vscode.languages
    .getDiagnostics(editor.document.uri)
    .find((each) => each.source?.toLowerCase() === "firstfault" && each.range.contains(editor.selection.active));
  const code = typeof here?.code === "object" ? here.code.value : here?.code;
  return code === undefined ? "" : String(code);
}
