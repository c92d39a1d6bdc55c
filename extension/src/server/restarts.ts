/** Whether a server that stopped by itself is started again: once, and not again within a short time. */

export const SHORT_TIME = 3 * 60 * 1000;

export class Restarts {
  #last: number | undefined;

  /** Says what to do about a process that ended at `now`, in milliseconds. */
  stopped(now: number): "restart" | "give-up" {
    const again = this.#last !== undefined && now - this.#last < SHORT_TIME;
    this.#last = now;
    return again ? "give-up" : "restart";
  }

  /** The user started it by hand: what was before does not count. */
  forget(): void {
    this.#last = undefined;
  }
}
