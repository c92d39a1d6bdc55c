/** From a script to the page of its measurement: what is run, whether it may be run, the run, and what can go wrong. */

import * as path from "node:path";
import * as vscode from "vscode";
import type { Measurement, MeasureParams } from "../protocol";
import { type Command, typed } from "../prove/commandLine";
import { measurementHtml } from "../prove/html";
import type { ProvePanel } from "../prove/panel";
import { environmentFor, type Training, type Trainings } from "../prove/training";
import type { OnProgress, Server } from "../server/client";
import { tell } from "./failures";
import { Nothing } from "./subjects";

const ALLOWED = "firstfault.measure.allowed";

export class Measuring {
  constructor(
    private readonly server: Server,
    private readonly panel: ProvePanel,
    private readonly trainings: Trainings,
    private readonly memory: vscode.Memento,
  ) {}

  async measure(clicked: vscode.Uri | undefined, asked?: Training): Promise<void> {
    try {
      const script = await scriptOf(clicked);
      const training = await this.allowed(script, asked);
      if (training) await this.#run(script, training);
    } catch (error) {
      await tell(error, "measure this");
    }
  }

  /** How the script is run, once the user has said that it may be. */
  async allowed(script: vscode.Uri, asked?: Training): Promise<Training | undefined> {
    let training = asked ?? (await this.trainings.of(script));
    while (training && !this.memory.get<boolean>(ALLOWED)) {
      const answer = await vscode.window.showInformationMessage(
        "Run the real script to measure it?",
        { modal: true, detail: detailOf(training) },
        "Run",
        "Change Command",
      );
      if (answer === "Run") await this.memory.update(ALLOWED, true);
      else if (answer === "Change Command") training = await this.trainings.ask(script, training);
      else return undefined;
    }
    return training;
  }

  /** Asks the server while a message tells how far it is; its button ends the run. */
  async withProgress<T>(
    training: Training,
    ask: (token: vscode.CancellationToken, progress: OnProgress) => Promise<T>,
  ): Promise<T> {
    const title = `Measuring ${shortened(typed(training.command))}`;
    const options = { location: vscode.ProgressLocation.Notification, title, cancellable: true };
    return vscode.window.withProgress(options, (progress, token) =>
      ask(token, ({ message }) => message && progress.report({ message })),
    );
  }

  async params(script: vscode.Uri, training: Training): Promise<MeasureParams> {
    const settings = vscode.workspace.getConfiguration("firstfault.measure", script);
    return {
      command: training.command.words,
      cwd: training.cwd,
      env: await environmentFor(training, script),
      uri: script.toString(),
      windows: settings.get<number>("windows", 2),
      timeout: settings.get<number>("timeout", 600),
    };
  }

  async #run(script: vscode.Uri, training: Training): Promise<void> {
    const params = await this.params(script, training);
    const measurement = await this.withProgress(training, (token, progress) =>
      this.server.measure(params, token, progress),
    );
    if (measurement) this.#show(measurement, script, training);
  }

  #show(measurement: Measurement, script: vscode.Uri, training: Training): void {
    const view = { measurement, command: typed(training.command), folder: training.cwd, label };
    this.panel.show(
      `Measured: ${path.basename(script.fsPath)}`,
      (nonce) => measurementHtml(view, nonce),
      async (action) => {
        if (action.kind === "again") await this.measure(script, training);
        if (action.kind !== "change") return;
        const other = await this.trainings.ask(script, training);
        if (other) await this.measure(script, other);
      },
    );
  }
}

export function label(file: string, line: number): string {
  return `${vscode.workspace.asRelativePath(file)}:${line}`;
}

/** The script as it will run: on disk, in a workspace that is trusted. */
export async function scriptOf(clicked: vscode.Uri | undefined): Promise<vscode.Uri> {
  if (!vscode.workspace.isTrusted) {
    throw new Nothing("Measuring runs your script. This workspace is not trusted, so nothing in it is run.", [
      { title: "Manage Workspace Trust", command: "workbench.trust.manage" },
    ]);
  }
  const uri = clicked ?? vscode.window.activeTextEditor?.document.uri;
  if (!uri) throw new Nothing("Open a training script first.");
  const document = await vscode.workspace.openTextDocument(uri);
  if (document.languageId !== "python") throw new Nothing(`${path.basename(uri.path)} is not a Python script.`);
  if (document.isUntitled || uri.scheme !== "file") {
    throw new Nothing("Only a script that is saved as a file on this machine can be run.");
  }
  if (document.isDirty && !(await document.save()))
    throw new Nothing("The script could not be saved; nothing was run.");
  return uri;
}

function detailOf({ command, cwd }: { command: Command; cwd: string }): string {
  const windows = vscode.workspace.getConfiguration("firstfault.measure").get<number>("windows", 2);
  return [
    typed(command),
    `in ${cwd}`,
    "",
    `It is ended after ${windows} optimizer step${windows === 1 ? "" : "s"}. Until then it is the real run: checkpoints, logs and uploads of the script are its own and are not held back. Firstfault itself writes nothing into your folders.`,
  ].join("\n");
}

function shortened(line: string): string {
  return line.length > 60 ? `${line.slice(0, 59)}…` : line;
}
