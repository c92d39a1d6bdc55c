/** The page of a measurement beside the script: one panel, used again. */

import { randomBytes } from "node:crypto";
import * as vscode from "vscode";
import type { Action } from "./html";

export interface Page {
  html: string;
  actions: Action[];
}

/** What a click does that the panel itself cannot. */
export type Act = (action: Action) => unknown;

export class ProvePanel implements vscode.Disposable {
  #panel: vscode.WebviewPanel | undefined;
  #actions: Action[] = [];
  #act: Act = () => undefined;

  constructor(private readonly icon: vscode.Uri) {}

  show(title: string, draw: (nonce: string) => Page, act: Act): void {
    const page = draw(randomBytes(16).toString("base64url"));
    this.#actions = page.actions;
    this.#act = act;
    const panel = this.#reveal();
    panel.title = title;
    panel.webview.html = page.html;
  }

  dispose(): void {
    this.#panel?.dispose();
  }

  /** The focus stays where the user is. */
  #reveal(): vscode.WebviewPanel {
    if (this.#panel) {
      this.#panel.reveal(undefined, true);
      return this.#panel;
    }
    const where = { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true };
    const options = { enableScripts: true, localResourceRoots: [], enableFindWidget: true };
    const panel = vscode.window.createWebviewPanel("firstfault.prove", "Firstfault", where, options);
    panel.iconPath = this.icon;
    // The page sends a number only; what it stands for was kept here.
    panel.webview.onDidReceiveMessage(({ action }: { action?: unknown }) => {
      const chosen = typeof action === "number" ? this.#actions[action] : undefined;
      if (chosen) return this.#do(chosen);
    });
    panel.onDidDispose(() => {
      this.#panel = undefined;
    });
    this.#panel = panel;
    return panel;
  }

  async #do(action: Action): Promise<void> {
    if (action.kind === "open") await this.#open(action.file, action.line);
    else if (action.kind === "explain") await vscode.commands.executeCommand("firstfault.explain", action.id);
    else await this.#act(action);
  }

  /** Where the script is, but never over the page. */
  async #open(file: string, line: number): Promise<void> {
    const here = this.#panel?.viewColumn;
    const viewColumn = here === vscode.ViewColumn.One ? vscode.ViewColumn.Two : vscode.ViewColumn.One;
    const selection = new vscode.Range(line - 1, 0, line - 1, 10_000);
    await vscode.commands.executeCommand("vscode.open", vscode.Uri.file(file), { selection, viewColumn });
  }
}
