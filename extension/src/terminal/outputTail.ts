/** The end of a stream of text, within a bounded memory. */

export const LIMIT = 4 * 1024 * 1024;

export class OutputTail {
  #chunks: string[] = [];
  #length = 0;
  #cut = false;

  constructor(private readonly limit = LIMIT) {}

  push(chunk: string): void {
    const kept = chunk.length > this.limit ? chunk.slice(-this.limit) : chunk;
    this.#cut ||= kept.length < chunk.length;
    this.#chunks.push(kept);
    this.#length += kept.length;
    while (this.#length - (this.#chunks[0]?.length ?? 0) >= this.limit) {
      this.#length -= this.#chunks.shift()?.length ?? 0;
      this.#cut = true;
    }
  }

  /** Whether the beginning is no longer here. */
  get isCut(): boolean {
    return this.#cut;
  }

  /** What is kept; where the beginning was cut, from the first whole line. */
  text(): string {
    const all = this.#chunks.join("");
    this.#chunks = all ? [all] : [];
    return this.#cut ? all.slice(all.indexOf("\n") + 1) : all;
  }
}
