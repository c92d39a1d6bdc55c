/** A command as it is typed, taken apart into words where that needs no shell; and put together again. Pure. */

import * as path from "node:path";

export interface Command {
  words: string[];
  /** Assignments before the program, as in `CUDA_VISIBLE_DEVICES=0 python train.py`. */
  env: Record<string, string>;
}

/** What a shell would do more than splitting: pipes, several commands, variables, wildcards, other folders. */
const SHELL = /[|&;<>()$`*?{\n]/;

/** The command, or undefined where only a shell can tell what it means. */
export function parsed(line: string, platform: NodeJS.Platform = process.platform): Command | undefined {
  const words = split(line.trim(), platform === "win32");
  const env: Record<string, string> = {};
  while (words?.[0] && /^[A-Za-z_]\w*=/.test(words[0])) {
    const [name = "", ...value] = (words.shift() ?? "").split("=");
    env[name] = value.join("=");
  }
  return words?.length ? { words, env } : undefined;
}

/** The command as it would be typed. */
export function typed({ words, env }: Command): string {
  return [...Object.entries(env).map(([name, value]) => `${name}=${quoted(value)}`), ...words.map(quoted)].join(" ");
}

/** Whether the command runs this script, by its path or as a module. */
export function runs({ words }: Command, cwd: string, script: string, p: path.PlatformPath = path): boolean {
  return words.some((word, at) => {
    const named = words[at - 1] === "-m" ? `${word.replaceAll(".", p.sep)}.py` : word;
    return named.endsWith(".py") && p.resolve(cwd, named) === p.resolve(script);
  });
}

/** A Python, and a script below `cwd`, as one would type them there. */
export function suggested(python: string, script: string, cwd: string, p: path.PlatformPath = path): string {
  return typed({ words: [shortened(python, cwd, p), shortened(script, cwd, p)], env: {} });
}

function shortened(file: string, cwd: string, p: path.PlatformPath): string {
  const inner = p.relative(cwd, file);
  return inner && !inner.startsWith("..") && !p.isAbsolute(inner) ? inner : file;
}

function split(line: string, windows: boolean): string[] | undefined {
  const words: string[] = [];
  let word = "";
  let isWord = false; // also an empty one, in quotes
  let quote = "";
  for (let at = 0; at < line.length; at++) {
    const character = line[at] ?? "";
    const isEscape = character === "\\" && !windows && quote !== "'";
    if (!quote && /[ \t]/.test(character)) {
      if (isWord) words.push(word);
      word = "";
      isWord = false;
      continue;
    }
    if (character === quote) {
      quote = "";
    } else if (isEscape && (!quote || /["\\]/.test(line[at + 1] ?? ""))) {
      word += line[++at] ?? "";
    } else if (!quote && (character === '"' || (character === "'" && !windows))) {
      quote = character;
    } else if (quote ? quote === '"' && /[$`]/.test(character) : isForShell(character, isWord)) {
      return undefined;
    } else {
      word += character;
    }
    isWord = true;
  }
  if (quote) return undefined;
  return isWord ? [...words, word] : words;
}

function isForShell(character: string, isInside: boolean): boolean {
  return SHELL.test(character) || (!isInside && /[~#]/.test(character));
}

function quoted(word: string): string {
  if (/^[\w@%+=:,./\\[\]-]+$/.test(word)) return word;
  return word.includes("'") ? `"${word.replace(/(["\\])/g, "\\$1")}"` : `'${word}'`;
}
