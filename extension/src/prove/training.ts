/** How a script is run: as it last ran in a terminal, as it was once told here, or as the user tells it now. */

import * as path from "node:path";
import * as vscode from "vscode";
import { userPython } from "../server/interpreterSearch";
import type { TerminalCapture } from "../terminal/capture";
import { type Command, parsed, runs, suggested, typed } from "./commandLine";

export interface Training {
  command: Command;
  cwd: string;
}

const REMEMBERED = "firstfault.measure.commands";

export class Trainings {
  constructor(
    private readonly memory: vscode.Memento,
    private readonly capture: TerminalCapture,
  ) {}

  /** Undefined where the user was asked and does not want to tell. */
  async of(script: vscode.Uri): Promise<Training | undefined> {
    return this.#ofTerminal(script) ?? this.#remembered(script) ?? this.ask(script);
  }

  async ask(script: vscode.Uri, before?: Training): Promise<Training | undefined> {
    const cwd = before?.cwd ?? folderOf(script);
    const value = before ? typed(before.command) : suggested(await userPython(script), script.fsPath, cwd);
    const line = await vscode.window.showInputBox({
      title: `How is ${path.basename(script.fsPath)} run?`,
      prompt: `In ${cwd}. Arguments and torchrun or accelerate are as you type them in a terminal.`,
      value,
      valueSelection: [value.length, value.length],
      ignoreFocusOut: true,
      validateInput: (text) => problemOf(text),
    });
    const command = line === undefined ? undefined : parsed(line);
    if (!command) return undefined;
    await this.memory.update(REMEMBERED, { ...this.#all(), [script.fsPath]: { line: typed(command), cwd } });
    this.capture.forgetCommands((each) => isOf(each, script));
    return { command, cwd };
  }

  #ofTerminal(script: vscode.Uri): Training | undefined {
    for (const { line, cwd } of this.capture.commands()) {
      const command = parsed(line);
      const folder = cwd ?? folderOf(script);
      if (command && runs(command, folder, script.fsPath)) return { command, cwd: folder };
    }
    return undefined;
  }

  #remembered(script: vscode.Uri): Training | undefined {
    const known = this.#all()[script.fsPath];
    const command = known && parsed(known.line);
    return command && { command, cwd: known.cwd };
  }

  #all(): Record<string, { line: string; cwd: string }> {
    return this.memory.get(REMEMBERED, {});
  }
}

function isOf({ line, cwd }: { line: string; cwd: string | undefined }, script: vscode.Uri): boolean {
  const command = parsed(line);
  return command !== undefined && runs(command, cwd ?? folderOf(script), script.fsPath);
}

function problemOf(line: string): string | undefined {
  if (!line.trim()) return "A command, such as python train.py";
  if (parsed(line)) return undefined;
  return "One plain command: no pipes, variables or wildcards, which only a shell understands. A script of the shell may hold them.";
}

export function folderOf(script: vscode.Uri): string {
  return vscode.workspace.getWorkspaceFolder(script)?.uri.fsPath ?? path.dirname(script.fsPath);
}

/** The editor's own environment, in which the user's Python and what lies beside it, such as torchrun, come first. */
export async function environmentFor({ command }: Training, script: vscode.Uri): Promise<Record<string, string>> {
  const python = await userPython(script);
  const known = Object.entries(process.env).filter((entry): entry is [string, string] => entry[1] !== undefined);
  // What the editor sets for its own processes is none of the script's business.
  const kept = Object.fromEntries(known.filter(([name]) => !/^(?:VSCODE_|ELECTRON_)/.test(name)));
  const name = Object.keys(kept).find((each) => each.toUpperCase() === "PATH") ?? "PATH";
  const first = path.isAbsolute(python) ? [path.dirname(python)] : [];
  return { ...kept, [name]: [...first, ...(kept[name] ? [kept[name]] : [])].join(path.delimiter), ...command.env };
}
