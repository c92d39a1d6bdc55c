/** From a subject to the panel: the request, its progress, and what can go wrong, in plain words. */

import * as vscode from "vscode";
import type { Report } from "../protocol";
import type { ReportPanel } from "../report/panel";
import type { Subject } from "../report/subject";
import { messageOf, type Server } from "../server/client";
import { Nothing } from "./subjects";

/** Most diagnoses are done by then; a message that only flashes would disturb. */
const QUIET = 400;

export async function diagnose(
  find: () => Subject | Promise<Subject>,
  server: Server,
  panel: ReportPanel,
): Promise<void> {
  try {
    const subject = await find();
    const report = await ask(server, subject);
    if (report) await panel.show(report, subject);
  } catch (error) {
    await tell(error);
  }
}

async function ask(server: Server, subject: Subject): Promise<Report | undefined> {
  const cancellation = new vscode.CancellationTokenSource();
  let say = (_step: { message?: string }): void => undefined;
  const asked = server.diagnose(subject.params, cancellation.token, (step) => say(step));
  try {
    if (!(await isDoneWithin(QUIET, asked))) {
      await showProgress(subject, asked, cancellation, (listener) => {
        say = listener;
      });
    }
    return await asked;
  } finally {
    cancellation.dispose();
  }
}

async function showProgress(
  { title }: Subject,
  asked: Promise<unknown>,
  cancellation: vscode.CancellationTokenSource,
  listen: (say: (step: { message?: string }) => void) => void,
): Promise<void> {
  const options = { location: vscode.ProgressLocation.Notification, title: `Diagnosing ${title}`, cancellable: true };
  await vscode.window.withProgress(options, async (progress, token) => {
    listen(({ message }) => message && progress.report({ message }));
    token.onCancellationRequested(() => cancellation.cancel());
    await asked.catch(() => undefined);
  });
}

async function isDoneWithin(milliseconds: number, asked: Promise<unknown>): Promise<boolean> {
  const late = new Promise<boolean>((resolve) => setTimeout(() => resolve(false), milliseconds));
  const done = asked.then(
    () => true,
    () => true,
  );
  return Promise.race([done, late]);
}

const CANCELLED = new Set([-32800, -32802]);
/** The process ended with the question unanswered. */
const UNANSWERED = -32097;

async function tell(error: unknown): Promise<void> {
  if (error instanceof vscode.CancellationError || CANCELLED.has(codeOf(error))) return;
  const offers = error instanceof Nothing ? error.offers : [{ title: "Show Output", command: "firstfault.showOutput" }];
  const show = error instanceof Nothing ? vscode.window.showInformationMessage : vscode.window.showErrorMessage;
  const message = error instanceof Nothing ? error.message : failureOf(error);
  const answer = await show(message, ...offers.map((each) => each.title));
  const chosen = offers.find((each) => each.title === answer);
  if (chosen) await vscode.commands.executeCommand(chosen.command);
}

function failureOf(error: unknown): string {
  if (codeOf(error) === UNANSWERED) return "Firstfault's server stopped while it was reading this. Try again.";
  return `Firstfault could not diagnose this. ${messageOf(error)}`;
}

function codeOf(error: unknown): number {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "number" ? code : 0;
}
