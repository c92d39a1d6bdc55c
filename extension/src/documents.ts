/** Read-only documents for texts that are no file: what a terminal printed, what was on the clipboard, a page. */

import * as vscode from "vscode";

export const LOG_SCHEME = "firstfault-log";
const MOST = 12;

export class Documents implements vscode.TextDocumentContentProvider, vscode.Disposable {
  readonly #texts = new Map<string, string>();
  readonly #registration = vscode.workspace.registerTextDocumentContentProvider(LOG_SCHEME, this);
  #count = 0;

  /** A document of this text; the oldest of many is forgotten. */
  add(name: string, text: string): vscode.Uri {
    const file =
      name
        .replace(/[^\p{L}\p{N}._ -]+/gu, " ")
        .trim()
        .slice(0, 60) || "text";
    const uri = vscode.Uri.from({ scheme: LOG_SCHEME, path: `/${++this.#count}/${file}` });
    this.#texts.set(uri.path, text);
    const oldest = this.#texts.keys().next().value;
    if (this.#texts.size > MOST && oldest !== undefined) this.#texts.delete(oldest);
    return uri;
  }

  text(uri: vscode.Uri): string | undefined {
    return this.#texts.get(uri.path);
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.text(uri) ?? "This text is no longer kept. Run the command again.";
  }

  dispose(): void {
    this.#registration.dispose();
  }
}
