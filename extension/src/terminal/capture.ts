/**
 * What the last command of each terminal printed, by the shell's integration.
 *
 * The stream gives only what is written after it was asked for, so it is asked for when a command starts, and read
 * while it runs; of its end a bounded part is kept.
 */

import * as vscode from "vscode";
import { OutputTail } from "./outputTail";
import { plainText } from "./plainText";

export interface CapturedCommand {
  commandLine: string;
  text: string;
  isCut: boolean;
  isRunning: boolean;
}

export interface RunCommand {
  line: string;
  cwd: string | undefined;
}

const MOST_COMMANDS = 100;

interface Running {
  execution: vscode.TerminalShellExecution;
  tail: OutputTail;
  finished: Promise<void>;
  isRunning: boolean;
}

export class TerminalCapture implements vscode.Disposable {
  readonly #last = new Map<vscode.Terminal, Running>();
  #history: vscode.TerminalShellExecution[] = [];
  readonly #subscriptions = [
    vscode.window.onDidStartTerminalShellExecution(({ terminal, execution }) => this.#started(terminal, execution)),
    vscode.window.onDidEndTerminalShellExecution(({ terminal, execution }) => this.#ended(terminal, execution)),
    vscode.window.onDidCloseTerminal((terminal) => this.#last.delete(terminal)),
  ];

  /** The last command of the terminal, also one that still runs. */
  async lastCommand(terminal: vscode.Terminal): Promise<CapturedCommand | undefined> {
    const last = this.#last.get(terminal);
    if (!last) return undefined;
    // The end is told before the last of the output has been read.
    if (!last.isRunning) await Promise.race([last.finished, new Promise((resolve) => setTimeout(resolve, 2000))]);
    return {
      commandLine: last.execution.commandLine.value,
      text: plainText(last.tail.text()),
      isCut: last.tail.isCut,
      isRunning: last.isRunning,
    };
  }

  /** What was run in any terminal, the newest first. */
  commands(): RunCommand[] {
    return this.#history.map(commandOf);
  }

  forgetCommands(which: (command: RunCommand) => boolean): void {
    this.#history = this.#history.filter((each) => !which(commandOf(each)));
  }

  dispose(): void {
    for (const each of this.#subscriptions) each.dispose();
  }

  #started(terminal: vscode.Terminal, execution: vscode.TerminalShellExecution): void {
    const tail = new OutputTail();
    this.#history = [execution, ...this.#history].slice(0, MOST_COMMANDS);
    this.#last.set(terminal, { execution, tail, finished: collect(execution.read(), tail), isRunning: true });
  }

  #ended(terminal: vscode.Terminal, execution: vscode.TerminalShellExecution): void {
    const last = this.#last.get(terminal);
    if (last?.execution === execution) last.isRunning = false;
  }
}

function commandOf({ commandLine, cwd }: vscode.TerminalShellExecution): RunCommand {
  return { line: commandLine.value, cwd: cwd?.fsPath };
}

async function collect(stream: AsyncIterable<string>, tail: OutputTail): Promise<void> {
  for await (const chunk of stream) tail.push(chunk);
}
