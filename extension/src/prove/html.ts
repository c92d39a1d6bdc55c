/** A measurement as a page: the verdicts first, then the numbers they rest on. Pure: values in, text out. */

import type { Measurement, MicroBatch, Verdict, Window } from "../protocol";
import { html, type Markup } from "../report/markup";
import { pageOf } from "../report/page";
import { plainText } from "../terminal/plainText";
import { pictureOf } from "./picture";
import PROVE_STYLE from "./style.css";

/** What a click asks for. The page knows only its number. */
export type Action =
  | { kind: "open"; file: string; line: number }
  | { kind: "explain"; id: string }
  | { kind: "again" }
  | { kind: "apply" }
  | { kind: "change" };

export interface MeasurementView {
  measurement: Measurement;
  /** The command as it would be typed, and the folder it ran in. */
  command: string;
  folder: string;
  label(file: string, line: number): string;
}

export interface MeasurementPage {
  html: string;
  actions: Action[];
}

export function measurementHtml(view: MeasurementView, nonce: string): MeasurementPage {
  const page = new Page(view);
  return { html: whole(page.body(), nonce), actions: page.actions };
}

/** A page about measurements. */
export function whole(body: Markup, nonce: string): string {
  return pageOf(body, nonce, PROVE_STYLE);
}

type State = Verdict["state"];

const STATES: readonly State[] = ["proven", "refuted", "not measured"];
const CLASSES: Record<State, string> = { proven: "proven", refuted: "refuted", "not measured": "open" };

/** Rows of one window's table; nobody compares more by eye. */
const MOST_ROWS = 16;

class Page {
  readonly actions: Action[] = [];
  readonly #measurement: Measurement;

  constructor(private readonly view: MeasurementView) {
    this.#measurement = view.measurement;
  }

  body(): Markup {
    const { verdicts, windows, right } = this.#measurement;
    return html`<body class="measured">
<main>
<header>
<p class="chips">${STATES.map((state) => this.#count(state))}<span class="subject"><code>${this.view.command}</code></span></p>
<h1>${headline(this.#measurement)}</h1>
</header>
${verdicts.length > 0 && html`<ul class="verdicts">${verdicts.map((each) => this.#verdict(each))}</ul>`}
<p class="ended">${this.#ended()}</p>
${this.#picture()}
${windows.map((each) => this.#window(each))}
${right.length > 0 && html`<section><h2>Measured as well, and right</h2><p>${right.join(", ")}</p></section>`}
${this.#notes()}
${this.#printed()}
${this.#footer()}
</main>
</body>`;
  }

  #count(state: State): Markup {
    const number = this.#measurement.verdicts.filter((each) => each.state === state).length;
    return html`${number > 0 && html`<span class="chip ${CLASSES[state]}">${number} ${state}</span>`}`;
  }

  #verdict({ code, name, state, message, file, line, suspected }: Verdict): Markup {
    const unseen =
      state === "proven" && !suspected && html` <span class="quiet">the text of the script does not show it</span>`;
    return html`<li class="${CLASSES[state]}">
<p><span class="state">${state}</span> <a href="#" class="id" title="Explain ${code}" data-action="${this.#act({ kind: "explain", id: code })}">${code} ${name}</a>${
      file !== null && line !== null && html` <span class="at">${this.#link(file, line)}</span>`
    }${unseen}</p>
<p>${message}</p>
</li>`;
  }

  #ended(): string {
    const { ended, ranks } = this.#measurement;
    const [first] = ranks;
    if (!first) return ended;
    const many = ranks.length > 1 ? `${ranks.length} ranks, ` : "";
    return `${ended} ${many || ""}Python ${first.python}, torch ${first.torch}.`;
  }

  #picture(): Markup | false {
    const { windows, picture } = this.#measurement;
    if (!windows.some((each) => each.micro_batches.length)) return false;
    const drawn = pictureOf(picture);
    return (
      drawn !== undefined &&
      html`<section><h2>Weight of one target, by micro-batch</h2><figure>${drawn}</figure></section>`
    );
  }

  #window(window: Window): Markup {
    const { index, state, remarks } = window;
    return html`<section class="window"><h2>Window ${index + 1}${state && html` <span class="quiet">(${state})</span>`}</h2>
${losses(window).map((rows, at) => this.#table(rows, at === 0 ? window : undefined))}
${remarks.length > 0 && html`<ul class="remarks">${remarks.map((each) => html`<li>${each}</li>`)}</ul>`}
</section>`;
  }

  #table(rows: MicroBatch[], window: Window | undefined): Markup {
    const [first] = rows;
    if (!first) return html``;
    const ranked = new Set(rows.map((each) => each.rank)).size > 1;
    return html`<p class="loss">${first.loss} at ${this.#link(first.file, first.line)}${
      window &&
      html`<span class="sums">ratio <b>${number(window.ratio, 4)}</b>, weight × targets <b>${number(window.mass, 4)}</b></span>`
    }</p>
<table>
<thead><tr>${ranked && html`<th>rank</th>`}<th>micro-batch</th><th>targets</th><th>weight of one</th><th>share of the gradient</th><th>share of the targets</th></tr></thead>
<tbody>${rows.slice(0, MOST_ROWS).map((row) => tableRow(row, ranked))}</tbody>
</table>
${rows.length > MOST_ROWS && html`<p class="note">and ${rows.length - MOST_ROWS} more</p>`}`;
  }

  #notes(): Markup | false {
    const { notes } = this.#measurement;
    if (!notes.length) return false;
    const entries = notes.map(({ probe, why }) => html`<li>${probe.replaceAll("_", " ")}: ${why}</li>`);
    return html`<section><h2>Not measured</h2><ul>${entries}</ul></section>`;
  }

  #printed(): Markup | false {
    const printed = plainText(this.#measurement.printed).trimEnd();
    if (!printed) return false;
    return html`<section><details class="printed"><summary>What the command printed last</summary><pre><code>${tail(printed)}</code></pre></details></section>`;
  }

  #footer(): Markup {
    const again = this.#act({ kind: "again" });
    const change = this.#act({ kind: "change" });
    return html`<footer><p>Ran in ${this.view.folder}, on this machine only. Firstfault wrote nothing there.</p>
<p class="buttons"><button type="button" data-action="${again}">Measure Again</button><button type="button" data-action="${change}">Change Command</button></p></footer>`;
  }

  #link(file: string, line: number): Markup {
    return html`<a href="#" class="place" title="${file}:${line}" data-action="${this.#act({ kind: "open", file, line })}">${this.view.label(file, line)}</a>`;
  }

  #act(action: Action): number {
    return this.actions.push(action) - 1;
  }
}

function headline({ verdicts, windows }: Measurement): string {
  const proven = verdicts.filter((each) => each.state === "proven");
  const [first] = proven;
  if (proven.length > 1) return `${proven.length} faults are proven`;
  if (first) return `${first.code} ${first.name} is proven`;
  if (!windows.some((each) => each.complete)) return "Nothing could be measured";
  const open = verdicts.filter((each) => each.state === "not measured").length;
  if (open) return open === 1 ? "One finding stays open" : `${open} findings stay open`;
  return verdicts.length ? "What was suspected is refuted" : "No fault was measured";
}

function tableRow(
  { rank, number: at, targets, weight, share, right_share, dropped }: MicroBatch,
  ranked: boolean,
): Markup {
  return html`<tr class="${dropped && "dropped"}">${ranked && html`<td>${rank}</td>`}<td>${at + 1}</td><td>${targets.toLocaleString("en")}</td><td>${significant(weight)}</td><td>${dropped ? "dropped" : percent(share)}</td><td>${percent(right_share)}</td></tr>`;
}

/** The calls of one place together, the longest list first: its sums are those of the window. */
function losses({ micro_batches }: Window): MicroBatch[][] {
  const found = new Map<string, MicroBatch[]>();
  for (const each of micro_batches) {
    const place = `${each.loss} ${each.file}:${each.line}`;
    found.set(place, [...(found.get(place) ?? []), each]);
  }
  return [...found.values()].sort((one, other) => other.length - one.length);
}

const LONGEST = 6000;

function tail(text: string): string {
  return text.length > LONGEST ? text.slice(text.indexOf("\n", text.length - LONGEST) + 1) : text;
}

function number(value: number | null, digits: number): string {
  return value === null ? "not finite" : value.toFixed(digits);
}

function significant(value: number | null): string {
  return value === null ? "not finite" : String(Number(value.toPrecision(4)));
}

function percent(value: number | null): string {
  return value === null ? "" : `${(100 * value).toFixed(1)} %`;
}
