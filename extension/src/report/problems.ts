/** An entry in the Problems list at the user's own frame, where the workspace holds that file. */

import * as vscode from "vscode";
import type { Report } from "../protocol";
import type { Places } from "./places";

export class Problems implements vscode.Disposable {
  readonly #collection = vscode.languages.createDiagnosticCollection("firstfault-report");

  async show(report: Report, places: Places): Promise<void> {
    this.clear();
    const frame = report.initiating?.frame;
    if (!frame) return;
    const location = await places.location(frame.file, frame.line);
    if (!location || !vscode.workspace.getWorkspaceFolder(location.uri)) return;
    this.#collection.set(location.uri, [await problem(report, places, location.range)]);
  }

  clear(): void {
    this.#collection.clear();
  }

  dispose(): void {
    this.#collection.dispose();
  }
}

async function problem(report: Report, places: Places, range: vscode.Range): Promise<vscode.Diagnostic> {
  const severity =
    report.verdict === "no-failure" ? vscode.DiagnosticSeverity.Information : vscode.DiagnosticSeverity.Error;
  const entry = new vscode.Diagnostic(range, problemText(report), severity);
  entry.source = "Firstfault";
  entry.code = report.initiating?.signature;
  const first = report.initiating?.evidence[0];
  const location = first && (await places.location(first.file, first.line, first.text));
  if (location) {
    entry.relatedInformation = [new vscode.DiagnosticRelatedInformation(location, "In the log")];
  }
  return entry;
}

function problemText({ initiating, cause }: Report): string {
  const failure = [initiating?.exception, initiating?.message.split("\n")[0]].filter(Boolean).join(": ");
  const firstSentence = /^.*?[.](?=\s|$)/s.exec(cause)?.[0] ?? cause;
  return [failure || initiating?.title, firstSentence].filter(Boolean).join("\n");
}
