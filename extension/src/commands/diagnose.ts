/** From a subject to the panel: the request, its progress, and what can go wrong, in plain words. */

import * as vscode from "vscode";
import type { Report } from "../protocol";
import type { ReportPanel } from "../report/panel";
import type { Subject } from "../report/subject";
import type { Server } from "../server/client";
import { tell } from "./failures";

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
    await tell(error, "diagnose this");
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
