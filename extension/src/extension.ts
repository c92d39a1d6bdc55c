/** The extension's start: commands, and when the server is needed. It decides nothing about logs or scripts. */

import * as vscode from "vscode";
import { diagnose } from "./commands/diagnose";
import { explain } from "./commands/explain";
import { Measuring } from "./commands/measure";
import { writeProbe } from "./commands/probe";
import { proveFix } from "./commands/proveFix";
import { ofClipboard, ofExample, ofFile, ofFolder, ofSelection } from "./commands/subjects";
import { ofLastCommand, ofTerminalSelection, ofWholeTerminal } from "./commands/terminalSubjects";
import { Documents } from "./documents";
import type { FixOf } from "./protocol";
import { TrainingContext } from "./prove/context";
import { ProvePanel } from "./prove/panel";
import { Trainings } from "./prove/training";
import { ReportPanel } from "./report/panel";
import { Problems } from "./report/problems";
import type { Subject } from "./report/subject";
import { Server } from "./server/client";
import { TerminalCapture } from "./terminal/capture";

let server: Server | undefined;

export function activate(context: vscode.ExtensionContext): void {
  const output = vscode.window.createOutputChannel("Firstfault", { log: true });
  const started = new Server(context, output);
  server = started;
  context.subscriptions.push(output, started, ...commandsOf(context, started, output), ...startsOf(started));
}

export async function deactivate(): Promise<void> {
  await server?.stop();
}

function commandsOf(
  context: vscode.ExtensionContext,
  server: Server,
  output: vscode.LogOutputChannel,
): vscode.Disposable[] {
  const documents = new Documents();
  const capture = new TerminalCapture();
  const problems = new Problems();
  const icon = vscode.Uri.joinPath(context.extensionUri, "extension", "media", "icon.png");
  const panel = new ReportPanel(icon, problems);
  const provePanel = new ProvePanel(icon);
  const trainings = new Trainings(context.workspaceState, capture);
  const measuring = new Measuring(server, provePanel, trainings, context.workspaceState);
  const on = (name: string, run: (...given: never[]) => unknown) =>
    vscode.commands.registerCommand(`firstfault.${name}`, run);
  const show = (find: () => Subject | Promise<Subject>) => diagnose(find, server, panel);
  type Clicked = vscode.Uri | undefined;
  type Selected = vscode.Uri[] | undefined;
  return [
    on("diagnoseSelection", () => show(ofSelection)),
    on("diagnoseFile", (clicked: Clicked, selected: Selected) => show(() => ofFile(clicked, listOf(selected)))),
    on("diagnoseFolder", (clicked: Clicked, selected: Selected) => show(() => ofFolder(clicked, listOf(selected)))),
    on("diagnoseClipboard", () => show(() => ofClipboard(documents))),
    on("diagnoseTerminalSelection", () => show(() => ofTerminalSelection(documents))),
    on("diagnoseLastCommand", () => show(() => ofLastCommand(capture, documents))),
    on("diagnoseWholeTerminal", () => show(() => ofWholeTerminal(documents))),
    on("diagnoseExample", () => show(() => ofExample(exampleOf(context)))),
    on("measure", (clicked: Clicked) => measuring.measure(uriOf(clicked))),
    on("proveFix", (fix: FixOf) => proveFix(server, provePanel, measuring, fix)),
    on("writeProbe", (clicked: Clicked) => writeProbe(server, uriOf(clicked))),
    on("explain", (id: unknown) => explain(server, documents, id)),
    on("restartServer", () => server.restart()),
    on("showOutput", () => output.show()),
    ...[documents, capture, problems, panel, provePanel, new TrainingContext()],
  ];
}

/** Menus of the editor's title give other things than a list in the second place. */
function listOf(selected: unknown): vscode.Uri[] | undefined {
  return Array.isArray(selected) ? selected.filter((each) => each instanceof vscode.Uri) : undefined;
}

function uriOf(clicked: unknown): vscode.Uri | undefined {
  return clicked instanceof vscode.Uri ? clicked : undefined;
}

function exampleOf(context: vscode.ExtensionContext): vscode.Uri {
  return vscode.Uri.joinPath(context.extensionUri, "examples", "run.log");
}

/** The server starts where Python is written; another window costs no process until a command needs one. */
function startsOf(server: Server): vscode.Disposable[] {
  void prepareForScripts(server);
  const check = (document: vscode.TextDocument) => {
    if (isChecked(document)) void server.readyForDocument();
  };
  vscode.workspace.textDocuments.forEach(check);
  return [
    vscode.workspace.onDidOpenTextDocument(check),
    vscode.workspace.onDidGrantWorkspaceTrust(() => vscode.workspace.textDocuments.forEach(check)),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration("firstfault.interpreter")) void server.restart();
      else if (change.affectsConfiguration("firstfault.check")) vscode.workspace.textDocuments.forEach(check);
    }),
  ];
}

/** A workspace with scripts at its top: started now, the first squiggle need not wait for the process. */
async function prepareForScripts(server: Server): Promise<void> {
  const [script] = await vscode.workspace.findFiles("{*.py,*/*.py,*.ipynb,*/*.ipynb}", undefined, 1);
  if (script && isEnabled()) await server.prepare();
}

function isEnabled(): boolean {
  return vscode.workspace.getConfiguration("firstfault").get<boolean>("check.enabled", true);
}

function isChecked({ languageId, uri }: vscode.TextDocument): boolean {
  return isEnabled() && languageId === "python" && ["file", "untitled", "vscode-notebook-cell"].includes(uri.scheme);
}
