/** The panel beside the source: one, used again for each report. */

import { randomBytes } from "node:crypto";
import * as vscode from "vscode";
import type { Report } from "../protocol";
import { type Action, reportHtml } from "./html";
import { Places } from "./places";
import type { Problems } from "./problems";
import type { Subject } from "./subject";

interface Shown {
  actions: Action[];
  places: Places;
  subject: Subject;
}

export class ReportPanel implements vscode.Disposable {
  #panel: vscode.WebviewPanel | undefined;
  #shown: Shown | undefined;

  constructor(
    private readonly icon: vscode.Uri,
    private readonly problems: Problems,
  ) {}

  async show(report: Report, subject: Subject): Promise<void> {
    const places = await Places.of(report, subject);
    const place = (file: string, line: number) => ({
      label: places.label(file, line),
      opens: places.uri(file) !== undefined,
    });
    const view = { report, subject: subject.title, notes: subject.notes, place };
    const page = reportHtml(view, randomBytes(16).toString("base64url"));
    this.#shown = { actions: page.actions, places, subject };
    this.#reveal().webview.html = page.html;
    await this.problems.show(report, places);
  }

  dispose(): void {
    this.#panel?.dispose();
  }

  /** The focus stays where the user is: in the log, or at the terminal's prompt. */
  #reveal(): vscode.WebviewPanel {
    if (this.#panel) {
      this.#panel.reveal(undefined, true);
      return this.#panel;
    }
    const where = { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true };
    const options = { enableScripts: true, localResourceRoots: [], enableFindWidget: true };
    const panel = vscode.window.createWebviewPanel("firstfault.report", "Firstfault", where, options);
    panel.iconPath = this.icon;
    panel.webview.onDidReceiveMessage((message: { action?: unknown }) => this.#act(message.action));
    panel.onDidDispose(() => {
      this.#panel = undefined;
      this.problems.clear();
    });
    this.#panel = panel;
    return panel;
  }

  /** Where the user's editor was, but never over the report. */
  #sourceColumn({ column }: Subject): vscode.ViewColumn {
    if (column !== this.#panel?.viewColumn) return column;
    return column === vscode.ViewColumn.One ? vscode.ViewColumn.Two : vscode.ViewColumn.One;
  }

  /** The page sends a number only; what it stands for was kept here. */
  async #act(index: unknown): Promise<void> {
    const action = typeof index === "number" ? this.#shown?.actions[index] : undefined;
    if (!action || !this.#shown) return;
    if (action.kind === "open") await open(action, this.#shown, this.#sourceColumn(this.#shown.subject));
    if (action.kind === "copy") await vscode.env.clipboard.writeText(action.text);
    if (action.kind === "insert") insert(action.text);
    if (action.kind === "explain") await vscode.commands.executeCommand("firstfault.explain", action.id);
  }
}

/** By the editor's own command: unlike a document asked for here, it also opens files above 50 MB. */
async function open(
  action: { file: string; line: number; text: string },
  { places }: Shown,
  viewColumn: vscode.ViewColumn,
): Promise<void> {
  const location = await places.location(action.file, action.line, action.text).catch(() => undefined);
  if (!location) {
    void vscode.window.showWarningMessage(`${action.file} is not there any more.`);
    return;
  }
  const options: vscode.TextDocumentShowOptions = { selection: location.range, viewColumn };
  await vscode.commands.executeCommand("vscode.open", location.uri, options);
}

/** Written at the prompt, not run: Enter is the user's. */
function insert(command: string): void {
  const terminal = vscode.window.activeTerminal ?? vscode.window.createTerminal();
  terminal.show();
  terminal.sendText(command, false);
}
