/**
 * Text that only the clipboard can bring: there is no stable interface to a terminal's selection. What was on the
 * clipboard is put back.
 */

import * as vscode from "vscode";

export async function terminalSelection(): Promise<string> {
  // Not part of the stable interface, yet present: used where it is there, never needed.
  const direct = (vscode.window.activeTerminal as { selection?: unknown } | undefined)?.selection;
  if (typeof direct === "string" && direct) return direct;
  return copiedBy("workbench.action.terminal.copySelection");
}

/** Needs shell integration; gives nothing where the output is longer than what the terminal keeps. */
export function lastCommandOutput(): Promise<string> {
  return copiedBy("workbench.action.terminal.copyLastCommandOutput");
}

/** All that the terminal keeps, also without shell integration. */
export function wholeTerminal(): Promise<string> {
  return copiedBy(
    "workbench.action.terminal.selectAll",
    "workbench.action.terminal.copySelection",
    "workbench.action.terminal.clearSelection",
  );
}

/** The commands leave the clipboard alone when there is nothing to copy; a mark tells that apart from a copy. */
async function copiedBy(...commands: string[]): Promise<string> {
  const { clipboard } = vscode.env;
  const before = await clipboard.readText();
  const mark = `firstfault ${Date.now()} ${Math.random()}`;
  await clipboard.writeText(mark);
  try {
    for (const command of commands) await vscode.commands.executeCommand(command);
    const copied = await clipboard.readText();
    return copied === mark ? "" : copied;
  } finally {
    await clipboard.writeText(before);
  }
}
