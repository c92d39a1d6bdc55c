/** Whether the active file trains something: only there the menus offer to measure it. */

import * as vscode from "vscode";

const KEY = "firstfault.trains";
/** A loop of the user's own, or a trainer's. */
const TRAINS = /\.backward\(|\bTrainer\(|\bcompute_loss\b/;

export class TrainingContext implements vscode.Disposable {
  readonly #subscriptions = [
    vscode.window.onDidChangeActiveTextEditor(() => this.#update()),
    vscode.workspace.onDidSaveTextDocument(() => this.#update()),
    vscode.languages.onDidChangeDiagnostics(({ uris }) => {
      const active = vscode.window.activeTextEditor?.document.uri.toString();
      if (uris.some((each) => each.toString() === active)) this.#update();
    }),
  ];
  #last: boolean | undefined;

  constructor() {
    this.#update();
  }

  dispose(): void {
    for (const each of this.#subscriptions) each.dispose();
  }

  #update(): void {
    const document = vscode.window.activeTextEditor?.document;
    const trains = document?.languageId === "python" && (hasFinding(document) || TRAINS.test(document.getText()));
    if (trains === this.#last) return;
    this.#last = trains;
    void vscode.commands.executeCommand("setContext", KEY, trains);
  }
}

function hasFinding({ uri }: vscode.TextDocument): boolean {
  return vscode.languages.getDiagnostics(uri).some((each) => each.source === "firstfault");
}
