/** What the terminal's commands diagnose. */

import * as vscode from "vscode";
import type { Documents } from "../documents";
import type { Subject } from "../report/subject";
import type { CapturedCommand, TerminalCapture } from "../terminal/capture";
import { lastCommandOutput, terminalSelection, wholeTerminal } from "../terminal/clipboard";
import { plainText } from "../terminal/plainText";
import { Nothing, ofText } from "./subjects";

const NAME = "terminal";
const LAST = { title: "Diagnose Last Command", command: "firstfault.diagnoseLastCommand" };
const SELECTION = { title: "Diagnose Terminal Selection", command: "firstfault.diagnoseTerminalSelection" };
const WHOLE = { title: "Diagnose Whole Terminal", command: "firstfault.diagnoseWholeTerminal" };

export async function ofTerminalSelection(documents: Documents): Promise<Subject> {
  activeTerminal();
  const text = await terminalSelection();
  if (!text.trim()) throw new Nothing("Nothing is selected in the terminal.", [LAST, WHOLE]);
  return ofText(documents, NAME, "Terminal selection", plainText(text));
}

export async function ofLastCommand(capture: TerminalCapture, documents: Documents): Promise<Subject> {
  const terminal = activeTerminal();
  const last = await capture.lastCommand(terminal);
  if (last?.text.trim()) return ofText(documents, NAME, titleOf(last), last.text, notesOf(last));
  if (!terminal.shellIntegration) throw withoutIntegration();
  // A command that ends at once gives nothing to read, though the terminal shows it.
  const text = plainText(await lastCommandOutput());
  if (text.trim()) return ofText(documents, NAME, last ? titleOf(last) : "Last command", text);
  throw new Nothing(
    last
      ? `"${last.commandLine}" printed nothing that could be read.`
      : "No command has run in this terminal since Firstfault was started.",
    [SELECTION, WHOLE],
  );
}

export async function ofWholeTerminal(documents: Documents): Promise<Subject> {
  activeTerminal();
  const text = await wholeTerminal();
  if (!text.trim()) throw new Nothing("The terminal is empty.");
  return ofText(documents, NAME, "Terminal", plainText(text), [
    "Read all that this terminal keeps, of every command in it.",
  ]);
}

function activeTerminal(): vscode.Terminal {
  const terminal = vscode.window.activeTerminal;
  if (!terminal) throw new Nothing("No terminal is open.");
  return terminal;
}

function titleOf({ commandLine }: CapturedCommand): string {
  const line = commandLine.trim().split("\n")[0] ?? "";
  return line ? (line.length > 60 ? `${line.slice(0, 59)}…` : line) : "Last command";
}

function notesOf({ isCut, isRunning }: CapturedCommand): string[] {
  return [
    ...(isRunning ? ["The command is still running: this is what it has printed so far."] : []),
    ...(isCut ? ["The output was long: only its last 4 MB were kept. The first failure may stand before them."] : []),
  ];
}

function withoutIntegration(): Nothing {
  return new Nothing(
    "This terminal has no shell integration, so it is not known where the output of the last command begins. " +
      "Select the text in the terminal, or take all of it. bash, zsh, fish and PowerShell have it; sh has not.",
    [SELECTION, WHOLE],
  );
}
