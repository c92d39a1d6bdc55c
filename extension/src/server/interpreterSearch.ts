/** Asks the editor for the facts on which the choice of an interpreter rests, and says so when there is none. */

import { statSync } from "node:fs";
import * as os from "node:os";
import * as vscode from "vscode";
import {
  type Choice,
  candidates,
  choose,
  type Exists,
  explainRefusals,
  type Facts,
  probeIn,
  SETTING,
} from "./interpreter";

export async function findInterpreter(emptyFolder: string, output: vscode.LogOutputChannel): Promise<Choice> {
  const choice = await choose(await facts(), exists, probeIn(emptyFolder));
  if (choice.refused.length) output.info(`Not used:\n${explainRefusals(choice.refused)}`);
  if (choice.found) output.info(`Python ${choice.found.version}: ${choice.found.path} (${choice.found.origin})`);
  return choice;
}

/** The Python of the user's own scripts, as a path or a name: never the one that was set for the server alone. */
export async function userPython(script: vscode.Uri): Promise<string> {
  const known = await facts(script);
  const found = candidates({ ...known, setting: "" }, exists).find((each) => exists(each.path) === "file");
  return found?.path ?? "python";
}

async function facts(script?: vscode.Uri): Promise<Facts> {
  const folders = vscode.workspace.workspaceFolders ?? [];
  return {
    setting: vscode.workspace.getConfiguration("firstfault").get<string>("interpreter") ?? "",
    extensionChoice: await pythonExtensionChoice(script),
    workspaceFolders: folders.filter((each) => each.uri.scheme === "file").map((each) => each.uri.fsPath),
    trusted: vscode.workspace.isTrusted,
    env: process.env,
    platform: process.platform,
    home: os.homedir(),
  };
}

const exists: Exists = (file) => {
  const status = statSync(file, { throwIfNoEntry: false });
  if (!status) return undefined;
  return status.isDirectory() ? "folder" : "file";
};

/** The part of the Python extension's interface that is used here. */
interface PythonApi {
  environments?: {
    getActiveEnvironmentPath(resource?: vscode.Uri): { path: string };
    resolveEnvironment(environment: { path: string }): Promise<{ executable: { uri?: vscode.Uri } } | undefined>;
  };
}

async function pythonExtensionChoice(script: vscode.Uri | undefined): Promise<string | undefined> {
  const extension = vscode.extensions.getExtension<PythonApi>("ms-python.python");
  if (!extension) return undefined;
  return Promise.race([askPythonExtension(extension, script), after(10_000)]).catch(() => undefined);
}

async function askPythonExtension(
  extension: vscode.Extension<PythonApi>,
  script: vscode.Uri | undefined,
): Promise<string | undefined> {
  const { environments } = await extension.activate();
  const active = environments?.getActiveEnvironmentPath(script ?? vscode.workspace.workspaceFolders?.[0]?.uri);
  if (!environments || !active) return undefined;
  return (await environments.resolveEnvironment(active))?.executable.uri?.fsPath;
}

function after(milliseconds: number): Promise<undefined> {
  return new Promise((resolve) => setTimeout(() => resolve(undefined), milliseconds));
}

/** The set interpreter was refused, and another one is used: that must not stay unnoticed. */
export function warnOfSetting(choice: Choice): void {
  const refused = choice.refused.find((each) => each.origin === SETTING);
  if (!refused || !choice.found) return;
  void offer(
    vscode.window.showWarningMessage,
    `Firstfault cannot use ${refused.path}, which firstfault.interpreter names: ${refused.reason}. It uses ${choice.found.path} instead.`,
  );
}

export function showNoInterpreter(choice: Choice): void {
  const tried = choice.refused.slice(0, 4).map((each) => `${each.path}: ${each.reason}`);
  const more = choice.refused.length > 4 ? ` (and ${choice.refused.length - 4} more, see the output)` : "";
  const text = tried.length ? ` Tried ${tried.join("; ")}${more}.` : ` ${explainRefusals([])}`;
  void offer(vscode.window.showErrorMessage, `Firstfault needs Python 3.10 or newer and found none.${text}`);
}

type Show = (message: string, ...items: string[]) => Thenable<string | undefined>;

async function offer(show: Show, message: string): Promise<void> {
  const answer = await show(message, "Choose Interpreter", "Show Output");
  if (answer === "Choose Interpreter") {
    await vscode.commands.executeCommand("workbench.action.openSettings", "firstfault.interpreter");
  }
  if (answer === "Show Output") await vscode.commands.executeCommand("firstfault.showOutput");
}
