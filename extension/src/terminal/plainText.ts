/** What a terminal printed, as text: without the shell's marks, colours and cursor movements. */

// Strings for the terminal itself (titles, links, the marks of shell integration), ended by BEL or ST; one that lost
// its end stops at the line's.
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for.
const STRING = /(?:\x1b[\]PX^_]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: as above.
const CSI = /(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: as above.
const OTHER = /\x1b[ -/]*[0-~]?/g;

/** Progress bars keep their carriage returns; only the `\r\n` that ends a terminal's line becomes `\n`. */
export function plainText(raw: string): string {
  return raw.replace(STRING, "").replace(CSI, "").replace(OTHER, "").replace(/\r+\n/g, "\n");
}
