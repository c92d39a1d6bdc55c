/**
 * A report counts `\n` only, as grep does. The editor also breaks a line at a lone `\r`, which progress bars are full
 * of: here a cited line becomes a line of the editor.
 */

import { createReadStream } from "node:fs";
import { open } from "node:fs/promises";

/** The editor's line, from 0, of the text cited at line `line`, from 1. */
export function editorLine(text: string, line: number, cited = ""): number {
  const finder = new LineFinder(line, cited);
  finder.push(text);
  return finder.found;
}

/** The same for a file, of which only what stands before the line and the line itself are read. */
export async function editorLineOfFile(file: string, line: number, cited = ""): Promise<number> {
  const finder = new LineFinder(line, cited);
  const decoder = new TextDecoder(await encodingOf(file));
  for await (const chunk of createReadStream(file)) {
    finder.push(decoder.decode(chunk as Buffer, { stream: true }));
    if (finder.isDone) break;
  }
  return finder.found;
}

const LONGEST = 1 << 20;

/** Reads a text that comes in pieces up to the end of the line that is looked for. */
export class LineFinder {
  #newlinesLeft: number;
  #afterReturn = false;
  #line = 0;
  #content = "";
  isDone = false;

  constructor(
    line: number,
    private readonly cited: string,
  ) {
    this.#newlinesLeft = Math.max(line, 1) - 1;
  }

  /** Where the line begins, or the frame of a progress bar within it that holds the cited text. */
  get found(): number {
    const frames = this.#content.replace(/\r+$/, "").split("\r");
    const frame = this.cited ? frames.findIndex((each) => each.includes(this.cited)) : 0;
    return this.#line + Math.max(frame, 0);
  }

  push(text: string): void {
    let at = 0;
    while (at < text.length && this.#newlinesLeft > 0) this.#count(text.charCodeAt(at++));
    if (this.#newlinesLeft > 0 || this.isDone) return;
    const end = text.indexOf("\n", at);
    this.#content += text.slice(at, end < 0 ? undefined : end);
    this.isDone = end >= 0 || this.#content.length > LONGEST;
  }

  #count(code: number): void {
    const isNewline = code === 10;
    // The \n of \r\n belongs to the break that was counted at the \r.
    if (code === 13 || (isNewline && !this.#afterReturn)) this.#line++;
    if (isNewline) this.#newlinesLeft--;
    this.#afterReturn = code === 13;
  }
}

/** A log is UTF-8 or, where its first two bytes say so, UTF-16. */
async function encodingOf(file: string): Promise<string> {
  const handle = await open(file);
  try {
    const { buffer } = await handle.read(Buffer.alloc(2), 0, 2, 0);
    if (buffer[0] === 0xff && buffer[1] === 0xfe) return "utf-16le";
    return buffer[0] === 0xfe && buffer[1] === 0xff ? "utf-16be" : "utf-8";
  } finally {
    await handle.close();
  }
}
