/** The server: started when it is first needed, started again once when it dies, and asked here. */

import * as path from "node:path";
import * as vscode from "vscode";
import {
  CloseAction,
  type CloseHandlerResult,
  ErrorAction,
  LanguageClient,
  type LanguageClientOptions,
  RevealOutputChannelOn,
  State,
  WorkDoneProgress,
} from "vscode-languageclient/node";
import {
  DIAGNOSE,
  type DiagnoseParams,
  EXPLAIN,
  type ExplainParams,
  type ExplainResult,
  type FixProof,
  MEASURE,
  type Measurement,
  type MeasureParams,
  PROVE_FIX,
  type ProveFixParams,
  type Report,
  SCAFFOLD,
  type ScaffoldParams,
  type ScaffoldResult,
} from "../protocol";
import { findInterpreter, showNoInterpreter, warnOfSetting } from "./interpreterSearch";
import { launchOf } from "./launch";
import { Restarts } from "./restarts";

/** Where the report's progress goes. */
export type OnProgress = (step: { message?: string | undefined; percentage?: number | undefined }) => void;

export class Server implements vscode.Disposable {
  readonly #restarts = new Restarts();
  readonly #trouble = vscode.window.createStatusBarItem("firstfault.trouble", vscode.StatusBarAlignment.Left);
  #client: LanguageClient | undefined;
  #starting: Promise<LanguageClient | undefined> | undefined;
  #requests = 0;
  #isQuiet = false;
  #hasToldWhy = false;

  constructor(
    private readonly context: vscode.ExtensionContext,
    private readonly output: vscode.LogOutputChannel,
  ) {
    this.#trouble.name = "Firstfault";
    this.#trouble.command = "firstfault.restartServer";
  }

  get isRunning(): boolean {
    return this.#client?.state === State.Running;
  }

  /** The running server. Undefined where none can run; the user has been told why. */
  async ready(): Promise<LanguageClient | undefined> {
    this.#isQuiet = false;
    return this.#ready();
  }

  /** For a document that is to be checked: what keeps the server from running is told once, not for each document. */
  async readyForDocument(): Promise<void> {
    if (!this.#hasToldWhy) await this.ready();
  }

  /** Starts it before it is needed; what goes wrong is told when it is needed. */
  async prepare(): Promise<void> {
    if (this.isRunning || this.#starting) return;
    this.#isQuiet = true;
    await this.#ready();
  }

  async #ready(): Promise<LanguageClient | undefined> {
    const client = this.#client;
    if (client?.state === State.Running) return client;
    // After a crash it is on its way already, and starting is waiting for that.
    if (client?.state === State.Starting && !this.#starting) {
      return client.start().then(
        () => client,
        () => undefined,
      );
    }
    this.#starting ??= this.#start().finally(() => {
      this.#starting = undefined;
    });
    return this.#starting;
  }

  async restart(): Promise<void> {
    await this.#starting;
    this.#restarts.forget();
    await this.stop();
    if (await this.ready()) vscode.window.setStatusBarMessage("Firstfault's server was restarted.", 5000);
  }

  async stop(): Promise<void> {
    const client = this.#client;
    this.#client = undefined;
    // A server that died or never started cannot be stopped, and need not be.
    if (client?.state === State.Running) await client.stop().catch(() => undefined);
    await client?.dispose().catch(() => undefined);
  }

  dispose(): void {
    this.#trouble.dispose();
    void this.stop();
  }

  // ------------------------------------------------------------------------------------------------ asking it

  async diagnose(
    params: DiagnoseParams,
    token: vscode.CancellationToken,
    progress: OnProgress,
  ): Promise<Report | undefined> {
    return this.#long(DIAGNOSE, params, token, progress);
  }

  async measure(
    params: MeasureParams,
    token: vscode.CancellationToken,
    progress: OnProgress,
  ): Promise<Measurement | undefined> {
    return this.#long(MEASURE, params, token, progress);
  }

  async proveFix(
    params: ProveFixParams,
    token: vscode.CancellationToken,
    progress: OnProgress,
  ): Promise<FixProof | undefined> {
    return this.#long(PROVE_FIX, params, token, progress);
  }

  async scaffold(params: ScaffoldParams): Promise<ScaffoldResult | undefined> {
    return (await this.ready())?.sendRequest<ScaffoldResult>(SCAFFOLD, params);
  }

  /** A request that tells how far it is, and that can be cancelled. */
  async #long<T>(
    method: string,
    params: object,
    token: vscode.CancellationToken,
    progress: OnProgress,
  ): Promise<T | undefined> {
    const client = await this.ready();
    if (!client) return undefined;
    const workDoneToken = `firstfault-${++this.#requests}`;
    const listening = client.onProgress(WorkDoneProgress.type, workDoneToken, (step) => progress(stepOf(step)));
    try {
      return await client.sendRequest<T>(method, { ...params, workDoneToken }, token);
    } finally {
      listening.dispose();
    }
  }

  async explain(params: ExplainParams): Promise<ExplainResult | undefined> {
    return (await this.ready())?.sendRequest<ExplainResult>(EXPLAIN, params);
  }

  // ------------------------------------------------------------------------------------------------ its life

  async #start(): Promise<LanguageClient | undefined> {
    await this.stop();
    const libs = this.context.asAbsolutePath(path.join("extension", "bundled", "libs"));
    const choice = await findInterpreter(libs, this.output);
    if (!choice.found) {
      this.#showTrouble("Firstfault found no Python to run its server. Click to try again.");
      this.#tell(() => showNoInterpreter(choice));
      return undefined;
    }
    warnOfSetting(choice);
    return this.#startWith(choice.found.path, libs);
  }

  async #startWith(python: string, libs: string): Promise<LanguageClient | undefined> {
    const cache = path.join(this.context.globalStorageUri.fsPath, "pycache");
    const client = new LanguageClient(
      "firstfault",
      "Firstfault",
      launchOf(python, libs, cache, process.env),
      this.#options(),
    );
    this.#client = client;
    client.onDidChangeState(({ newState }) => newState === State.Running && this.#isWell());
    try {
      await client.start();
      return client;
    } catch (error) {
      this.#showTrouble("Firstfault's server did not start. Click to try again.");
      this.#tell(() => void offer(`Firstfault's server did not start with ${python}: ${messageOf(error)}`));
      return undefined;
    }
  }

  #options(): LanguageClientOptions {
    const { check } = vscode.workspace.getConfiguration("firstfault");
    let hasRun = false;
    return {
      // Other schemes are left out: a past version in a comparison needs no squiggles.
      documentSelector: ["file", "untitled", "vscode-notebook-cell"].map((scheme) => ({ scheme, language: "python" })),
      outputChannel: this.output,
      revealOutputChannelOn: RevealOutputChannelOn.Never,
      initializationOptions: { check, proveFix: true },
      diagnosticPullOptions: { onChange: true, onSave: false },
      initializationFailedHandler: () => false,
      errorHandler: {
        error: () => ({ action: ErrorAction.Continue, handled: true }),
        closed: () => {
          const wasRunning = hasRun || this.isRunning;
          hasRun = wasRunning;
          return wasRunning ? this.#closed() : { action: CloseAction.DoNotRestart, handled: true };
        },
      },
    };
  }

  /** The process ended though nobody asked it to. */
  #closed(): CloseHandlerResult {
    if (this.#restarts.stopped(Date.now()) === "restart") {
      void offer("Firstfault's server stopped unexpectedly. It was started again.", vscode.window.showWarningMessage, [
        "Show Output",
      ]);
      return { action: CloseAction.Restart, handled: true };
    }
    this.#hasToldWhy = true;
    this.#showTrouble("Firstfault's server stopped twice and stays off. Click to start it again.");
    void offer("Firstfault's server stopped again, so it stays off. Restart Server starts it once more.");
    return { action: CloseAction.DoNotRestart, handled: true };
  }

  #isWell(): void {
    this.#hasToldWhy = false;
    this.#trouble.hide();
  }

  #tell(message: () => void): void {
    if (this.#isQuiet) return;
    this.#hasToldWhy = true;
    message();
  }

  #showTrouble(tooltip: string): void {
    this.#trouble.text = "$(warning) Firstfault";
    this.#trouble.tooltip = tooltip;
    this.#trouble.show();
  }
}

type Show = (message: string, ...items: string[]) => Thenable<string | undefined>;

async function offer(
  message: string,
  show: Show = vscode.window.showErrorMessage,
  choices = ["Restart Server", "Show Output"],
): Promise<void> {
  const answer = await show(message, ...choices);
  if (answer === "Restart Server") await vscode.commands.executeCommand("firstfault.restartServer");
  if (answer === "Show Output") await vscode.commands.executeCommand("firstfault.showOutput");
}

function stepOf(step: object): { message?: string; percentage?: number } {
  return step as { message?: string; percentage?: number };
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
