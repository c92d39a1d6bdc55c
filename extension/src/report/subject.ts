/** What is diagnosed: the request, and how to come back from a cited line to a place in the editor. */

import type * as vscode from "vscode";
import type { DiagnoseParams } from "../protocol";

export interface Subject {
  /** As the user would name it. */
  title: string;
  params: DiagnoseParams;
  /** The document that a text was taken from; cited lines count from `firstLine`, its line from 0. */
  text?: { uri: vscode.Uri; firstLine: number };
  /** The column in which cited places open, so that the report stays where it is. */
  column: vscode.ViewColumn;
  notes: string[];
}
