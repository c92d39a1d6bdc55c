/** Paths that a log names, which may come from another machine, and the files of this one. */

/** The one candidate that shares the most trailing parts with the path; undefined where two share as many. */
export function bestMatch(path: string, candidates: readonly string[]): string | undefined {
  const wanted = parts(path);
  const least = Math.min(wanted.length, leastParts(wanted));
  let best: string | undefined;
  let most = least - 1;
  let tied = false;
  for (const candidate of candidates) {
    const common = commonTail(wanted, parts(candidate));
    tied = common > most ? false : tied || common === most;
    if (common > most) [best, most] = [candidate, common];
  }
  return tied ? undefined : best;
}

/** A file of every package says nothing by its name alone. */
function leastParts(wanted: readonly string[]): number {
  return /^__\w+__\.py$/.test(wanted.at(-1) ?? "") ? 2 : 1;
}

function commonTail(left: readonly string[], right: readonly string[]): number {
  let count = 0;
  while (count < left.length && count < right.length && left.at(-1 - count) === right.at(-1 - count)) count++;
  return count;
}

function parts(path: string): string[] {
  return path.split(/[\\/]+/).filter((each) => each !== "" && each !== ".");
}

/** Whether a source can be the one that a frame names: it has such a line, and such a function. */
export function holdsFrame(source: string, frame: { line: number; function: string }): boolean {
  if (!source.split("\n")[frame.line - 1]?.trim()) return false;
  const name = frame.function.split(".").at(-1) ?? "";
  // Modules, lambdas and comprehensions have names in angle brackets.
  return !/^\w+$/.test(name) || new RegExp(`\\b(?:def|class)\\s+${name}\\b`).test(source);
}

export function baseName(path: string): string {
  return parts(path).at(-1) ?? path;
}

/** A glob for all files of this name, its special characters matched by `?`. */
export function globOf(path: string): string {
  return `**/${baseName(path).replace(/[[\]{}*?!,]/g, "?")}`;
}

/** A path on a network share: even asking whether it exists would send the user's credentials to a server. */
export function isShare(path: string): boolean {
  return /^[\\/]{2}/.test(path);
}

/** A label: below one of the roots the path inside it, else the path's last three parts. */
export function labelOf(path: string, roots: readonly string[]): string {
  const whole = parts(path);
  for (const root of roots) {
    const above = parts(root);
    const inside = whole.slice(above.length);
    if (inside.length && above.every((each, at) => each === whole[at])) return inside.join("/");
  }
  return whole.length > 3 ? `…/${whole.slice(-3).join("/")}` : path;
}

/** `0-2, 5` for 0, 1, 2 and 5. */
export function rankRanges(ranks: readonly number[]): string {
  const sorted = [...new Set(ranks)].sort((a, b) => a - b);
  const runs: [number, number][] = [];
  for (const rank of sorted) {
    const last = runs.at(-1);
    if (last && rank === last[1] + 1) last[1] = rank;
    else runs.push([rank, rank]);
  }
  return runs
    .map(([from, to]) => (from === to ? `${from}` : to === from + 1 ? `${from}, ${to}` : `${from}–${to}`))
    .join(", ");
}
