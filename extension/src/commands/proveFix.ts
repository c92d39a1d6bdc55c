/** From a light bulb to the page that says what a fix does on the user's own run; applying it is the user's. */

import * as path from "node:path";
import * as vscode from "vscode";
import type { FixOf, FixProof } from "../protocol";
import { typed } from "../prove/commandLine";
import { fixHtml } from "../prove/fixHtml";
import type { ProvePanel } from "../prove/panel";
import type { Training } from "../prove/training";
import type { Server } from "../server/client";
import { tell } from "./failures";
import { type Measuring, scriptOf } from "./measure";
import { Nothing } from "./subjects";

export async function proveFix(server: Server, panel: ProvePanel, measuring: Measuring, fix: FixOf): Promise<void> {
  try {
    const script = await scriptOf(vscode.Uri.parse(fix.uri));
    const training = await measuring.allowed(script);
    if (!training) return;
    const params = { ...(await measuring.params(script, training)), fix };
    const proof = await measuring.withProgress(training, (token, progress) => server.proveFix(params, token, progress));
    if (proof) show(proof, script, training);
  } catch (error) {
    await tell(error, "prove this fix");
  }

  function show(proof: FixProof, script: vscode.Uri, training: Training): void {
    const name = path.basename(script.fsPath);
    const view = { proof, command: typed(training.command), folder: training.cwd, script: name };
    panel.show(
      `Fix: ${name}`,
      (nonce) => fixHtml(view, nonce),
      async ({ kind }) => {
        if (kind === "apply") await apply(script, proof).catch((error: unknown) => tell(error, "apply this fix"));
        if (kind === "again") await proveFix(server, panel, measuring, fix);
      },
    );
  }
}

/** Only on the text that was measured. */
async function apply(script: vscode.Uri, { version, edits }: FixProof): Promise<void> {
  const document = await vscode.workspace.openTextDocument(script);
  if (document.version !== version) {
    throw new Nothing("The script has changed since the fix was measured. Ask for the fixes again.");
  }
  const edit = new vscode.WorkspaceEdit();
  for (const { range, newText } of edits) {
    const { start, end } = range;
    edit.replace(script, new vscode.Range(start.line, start.character, end.line, end.character), newText);
  }
  await vscode.workspace.applyEdit(edit);
  const shown = vscode.window.visibleTextEditors.find((each) => each.document === document)?.viewColumn;
  await vscode.window.showTextDocument(document, shown ?? vscode.ViewColumn.One);
}
