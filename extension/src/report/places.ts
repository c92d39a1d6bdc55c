/** Where a cited line is on this machine: in the text that was sent, in a file that was read, or in the workspace. */

import { readFile, realpath, stat } from "node:fs/promises";
import * as path from "node:path";
import * as vscode from "vscode";
import { LOG_SCHEME } from "../documents";
import type { Frame, Report } from "../protocol";
import { editorLine, editorLineOfFile } from "./lines";
import { baseName, bestMatch, globOf, holdsFrame, isShare, labelOf } from "./paths";
import type { Subject } from "./subject";

const MOST_CANDIDATES = 2000;
const NOT_OWN = "**/{node_modules,site-packages,dist-packages}/**";
/** In milliseconds: a report is worth more than one more link in it. */
const LONGEST_SEARCH = 2000;

export class Places {
  readonly #found = new Map<string, vscode.Uri | undefined>();
  /** Those that are there by the very path that was printed. */
  readonly #exact = new Set<string>();
  readonly #roots: string[];

  private constructor(private readonly subject: Subject) {
    const folders = (vscode.workspace.workspaceFolders ?? []).map((each) => each.uri.fsPath);
    const read = subject.params.paths ?? [];
    this.#roots = [...read, ...folders, ...read.map((each) => path.dirname(each))];
  }

  /** Looks for every file that the report names. */
  static async of(report: Report, subject: Subject): Promise<Places> {
    const places = new Places(subject);
    const frame = report.initiating?.frame;
    const files = new Set(citedFiles(report));
    await Promise.all([...files].map(async (file) => places.#found.set(file, await places.#find(file))));
    if (frame && !(await places.#isLikely(frame))) places.#found.delete(frame.file);
    return places;
  }

  /** The file's document, or undefined where it is not on this machine. */
  uri(file: string): vscode.Uri | undefined {
    return this.#found.get(file);
  }

  label(file: string, line: number): string {
    const { text, params } = this.subject;
    if (text && file === params.name) return `${this.#textLabel(text.uri)}:${line + text.firstLine}`;
    const uri = this.uri(file);
    return `${labelOf(uri ? uri.fsPath : file, this.#roots)}:${line}`;
  }

  /** The place in the editor of a cited line. */
  async location(file: string, line: number, cited = ""): Promise<vscode.Location | undefined> {
    const uri = this.uri(file);
    if (!uri) return undefined;
    const at = await this.#editorLine(uri, file, line, cited);
    return new vscode.Location(uri, new vscode.Range(at, 0, at, 10_000));
  }

  #textLabel(uri: vscode.Uri): string {
    return uri.scheme === LOG_SCHEME ? (this.subject.params.name ?? "") : vscode.workspace.asRelativePath(uri);
  }

  async #editorLine(uri: vscode.Uri, file: string, line: number, cited: string): Promise<number> {
    const { text, params } = this.subject;
    if (text && file === params.name) return text.firstLine + editorLine(params.text ?? "", line, cited);
    // A document that is open may have changed since; its lines were counted on disk all the same.
    return uri.scheme === "file" ? editorLineOfFile(uri.fsPath, line, cited) : line - 1;
  }

  /** A file that was found by a part of its path only may be another script of the same name. */
  async #isLikely(frame: Frame): Promise<boolean> {
    const found = this.uri(frame.file);
    if (found?.scheme !== "file" || this.#exact.has(frame.file)) return true;
    return holdsFrame(await readFile(found.fsPath, "utf8"), frame);
  }

  async #find(file: string): Promise<vscode.Uri | undefined> {
    const { text, params } = this.subject;
    if (text && file === params.name) return text.uri;
    if (file.endsWith(".gz")) return undefined; // The editor cannot show a line of it.
    const isHere = path.isAbsolute(file) && !isShare(file) && (await isFile(file));
    if (!isHere) return findInWorkspace(file);
    this.#exact.add(file);
    return asInWorkspace(file);
  }
}

/** The workspace may be open by another path than the one that Python printed, through a link. */
async function asInWorkspace(file: string): Promise<vscode.Uri> {
  const exact = vscode.Uri.file(file);
  if (vscode.workspace.getWorkspaceFolder(exact)) return exact;
  const other = await findInWorkspace(file);
  return other && (await isSameFile(other.fsPath, file)) ? other : exact;
}

async function isSameFile(one: string, other: string): Promise<boolean> {
  return (await realpath(one)) === (await realpath(other));
}

/** The one file of the workspace whose path ends most like this one. */
async function findInWorkspace(file: string): Promise<vscode.Uri | undefined> {
  const patience = new vscode.CancellationTokenSource();
  const timer = setTimeout(() => patience.cancel(), LONGEST_SEARCH);
  const found = await vscode.workspace.findFiles(globOf(file), NOT_OWN, MOST_CANDIDATES, patience.token);
  clearTimeout(timer);
  // Of a part of the candidates it cannot be said that one is the only one.
  if (patience.token.isCancellationRequested || found.length === MOST_CANDIDATES) return undefined;
  const named = found.filter((uri) => uri.scheme === "file" && baseName(uri.fsPath) === baseName(file));
  const best = bestMatch(
    file,
    named.map((uri) => uri.fsPath),
  );
  return named.find((uri) => uri.fsPath === best);
}

async function isFile(file: string): Promise<boolean> {
  return stat(file).then(
    (status) => status.isFile(),
    () => false,
  );
}

function citedFiles({ initiating, collateral }: Report): string[] {
  const evidence = [...(initiating?.evidence ?? []), ...collateral.flatMap((each) => each.evidence)];
  return [...(initiating?.frame ? [initiating.frame.file] : []), ...evidence.map((each) => each.file)];
}
