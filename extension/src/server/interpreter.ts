/** Which Python runs the server: the candidates in order, and the first of them that is new enough. */

import { execFile } from "node:child_process";
import * as path from "node:path";

export const OLDEST = { major: 3, minor: 10 };

/** What is known before any interpreter is started. */
export interface Facts {
  setting: string;
  /** The choice of the Python extension, where that extension exists. */
  extensionChoice?: string | undefined;
  workspaceFolders: readonly string[];
  trusted: boolean;
  env: Readonly<Record<string, string | undefined>>;
  platform: NodeJS.Platform;
  /** The home folder, for a setting that begins with `~`. */
  home: string;
}

export interface Candidate {
  path: string;
  /** Where it was found, in words that end the sentence "the interpreter of ...". */
  origin: string;
}

export interface Refusal extends Candidate {
  reason: string;
}

export interface Interpreter extends Candidate {
  version: string;
}

export interface Choice {
  found?: Interpreter;
  /** Those before the found one, or all of them. */
  refused: Refusal[];
}

export type Exists = (file: string) => "file" | "folder" | undefined;
export type Probe = (file: string) => Promise<{ path: string; version: string } | { reason: string }>;

export const SETTING = "the setting firstfault.interpreter";

/** Tries the candidates in order. A path that was refused once is not started again. */
export async function choose(facts: Facts, exists: Exists, probe: Probe): Promise<Choice> {
  const refused: Refusal[] = [];
  const seen = new Set<string>();
  for (const candidate of candidates(facts, exists)) {
    if (seen.has(candidate.path)) continue;
    seen.add(candidate.path);
    const answer = await tried(candidate, facts, exists, probe);
    if ("version" in answer) return { found: { ...candidate, ...answer }, refused };
    refused.push({ ...candidate, ...answer });
  }
  return { refused };
}

async function tried(candidate: Candidate, facts: Facts, exists: Exists, probe: Probe) {
  // To start a program that lies in the workspace is to run the workspace's code.
  if (!facts.trusted && isInside(candidate.path, facts)) {
    return { reason: "it lies in a workspace that is not trusted" };
  }
  if (exists(candidate.path) !== "file") return { reason: "there is no such file" };
  const answer = await probe(candidate.path);
  if ("reason" in answer || isNewEnough(answer.version)) return answer;
  return { reason: `it is Python ${answer.version}; ${OLDEST.major}.${OLDEST.minor} or newer is needed` };
}

export function isNewEnough(version: string): boolean {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return major === OLDEST.major && minor >= OLDEST.minor;
}

function isInside(file: string, facts: Facts): boolean {
  const { relative, isAbsolute } = paths(facts);
  return facts.workspaceFolders.some((folder) => {
    const inner = relative(folder, file);
    return inner !== "" && !/^\.\.(?:[\\/]|$)/.test(inner) && !isAbsolute(inner);
  });
}

function paths(facts: Facts) {
  return facts.platform === "win32" ? path.win32 : path.posix;
}

export function candidates(facts: Facts, exists: Exists): Candidate[] {
  return [
    ...ofSetting(facts, exists),
    ...(facts.extensionChoice ? [{ path: facts.extensionChoice, origin: "the Python extension" }] : []),
    ...ofWorkspace(facts, exists),
    ...ofVariables(facts),
    ...ofPath(facts, exists),
  ];
}

function ofSetting(facts: Facts, exists: Exists): Candidate[] {
  const folder = facts.workspaceFolders[0] ?? "";
  const value = facts.setting
    .trim()
    .replaceAll("$" + "{workspaceFolder}", folder)
    .replace(/^~(?=$|[\\/])/, facts.home);
  if (!value) return [];
  if (!/[\\/]/.test(value)) {
    const onPath = which(value, facts, exists);
    return (onPath.length ? onPath : [value]).map((each) => ({ path: each, origin: SETTING }));
  }
  const file = paths(facts).resolve(folder, value);
  return [{ path: exists(file) === "folder" ? pythonOf(file, facts) : file, origin: SETTING }];
}

function ofWorkspace(facts: Facts, exists: Exists): Candidate[] {
  const found: Candidate[] = [];
  for (const folder of facts.workspaceFolders) {
    for (const name of [".venv", "venv", "env"]) {
      const file = pythonOf(paths(facts).join(folder, name), facts);
      if (exists(file) === "file") found.push({ path: file, origin: `the workspace's ${name}` });
    }
  }
  return found;
}

function ofVariables(facts: Facts): Candidate[] {
  return ["VIRTUAL_ENV", "CONDA_PREFIX"].flatMap((name) => {
    const root = facts.env[name];
    if (!root || !paths(facts).isAbsolute(root)) return [];
    // Conda on Windows keeps python.exe at the top, unlike a venv.
    const flat = facts.platform === "win32" && name === "CONDA_PREFIX";
    return [{ path: flat ? paths(facts).join(root, "python.exe") : pythonOf(root, facts), origin: name }];
  });
}

function ofPath(facts: Facts, exists: Exists): Candidate[] {
  const names = facts.platform === "win32" ? ["python", "py"] : ["python3", "python"];
  return names.flatMap((name) => which(name, facts, exists).map((file) => ({ path: file, origin: "PATH" })));
}

/** Every program of this name on PATH. Relative entries are left out: they mean another program in each folder. */
function which(name: string, facts: Facts, exists: Exists): string[] {
  const windows = facts.platform === "win32";
  const folders = (facts.env.PATH ?? facts.env.Path ?? "").split(windows ? ";" : ":");
  const file = windows && !/\.exe$/i.test(name) ? `${name}.exe` : name;
  const found = folders.filter((each) => paths(facts).isAbsolute(each)).map((each) => paths(facts).join(each, file));
  return [...new Set(found)].filter((each) => exists(each) === "file");
}

function pythonOf(environment: string, facts: Facts): string {
  const parts = facts.platform === "win32" ? ["Scripts", "python.exe"] : ["bin", "python"];
  return paths(facts).join(environment, ...parts);
}

const QUESTION = 'import sys; print(sys.executable); print("%d.%d.%d" % sys.version_info[:3])';

/** Asks an interpreter for its version, in `cwd`: a folder without modules that could be imported by accident. */
export function probeIn(cwd: string, timeout = 10_000): Probe {
  return (file) =>
    new Promise((resolve) => {
      execFile(file, ["-I", "-c", QUESTION], { cwd, timeout, windowsHide: true }, (error, stdout, stderr) => {
        const [executable, version] = stdout.trim().split(/\r?\n/).slice(-2);
        if (!error && executable && version && /^\d+\.\d+\.\d+$/.test(version)) {
          resolve({ path: executable, version });
        } else {
          resolve({ reason: probeFailure(error, stderr, timeout) });
        }
      });
    });
}

function probeFailure(error: (Error & { killed?: boolean; code?: unknown }) | null, stderr: string, timeout: number) {
  if (error?.killed) return `it did not answer within ${timeout / 1000} seconds`;
  if (error?.code === "EACCES") return "it is not executable";
  const line = stderr.trim().split(/\r?\n/)[0];
  return line ? `it does not start: ${line.slice(0, 200)}` : "it does not answer as Python 3 does";
}

/** What was tried and why each was refused, a line each. */
export function explainRefusals(refused: readonly Refusal[]): string {
  if (!refused.length) return "No Python was found: no setting, no environment, none on PATH.";
  return refused.map((each) => `${each.path} (${each.origin}): ${each.reason}.`).join("\n");
}
