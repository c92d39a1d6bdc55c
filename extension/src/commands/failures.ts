/** What the user is told where a command could not do its work. */

import * as vscode from "vscode";
import { messageOf } from "../server/client";
import { Nothing } from "./subjects";

const CANCELLED = new Set([-32800, -32802]);
/** The process ended with the question unanswered. */
const UNANSWERED = -32097;

/** `work` ends the sentence "Firstfault could not ...". */
export async function tell(error: unknown, work: string): Promise<void> {
  if (error instanceof vscode.CancellationError || CANCELLED.has(codeOf(error))) return;
  const offers = error instanceof Nothing ? error.offers : [{ title: "Show Output", command: "firstfault.showOutput" }];
  const show = error instanceof Nothing ? vscode.window.showInformationMessage : vscode.window.showErrorMessage;
  const message = error instanceof Nothing ? error.message : failureOf(error, work);
  const answer = await show(message, ...offers.map((each) => each.title));
  const chosen = offers.find((each) => each.title === answer);
  if (chosen) await vscode.commands.executeCommand(chosen.command);
}

function failureOf(error: unknown, work: string): string {
  if (codeOf(error) === UNANSWERED) return "Firstfault's server stopped before it had an answer. Try again.";
  return `Firstfault could not ${work}. ${messageOf(error)}`;
}

function codeOf(error: unknown): number {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "number" ? code : 0;
}
