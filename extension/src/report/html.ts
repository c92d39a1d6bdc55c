/** A report as a page: the answer in its first three lines, then what supports it. Pure: values in, text out. */

import type { Collateral, Evidence, Frame, Initiating, Missing, Rank, Report } from "../protocol";
import { plainText } from "../terminal/plainText";
import { html, Markup } from "./markup";
import { pageOf } from "./page";
import { rankRanges } from "./paths";

/** What a click asks for. The page knows only its number. */
export type Action =
  | { kind: "open"; file: string; line: number; text: string }
  | { kind: "copy"; text: string }
  | { kind: "insert"; text: string }
  | { kind: "explain"; id: string };

export interface ReportView {
  report: Report;
  /** What was read, as the user would name it. */
  subject: string;
  /** What the user must know about the reading itself, for example that only the end of an output was kept. */
  notes: readonly string[];
  /** How a place is named on the page, and whether it can be opened. */
  place(file: string, line: number): { label: string; opens: boolean };
}

export interface ReportPage {
  html: string;
  actions: Action[];
}

export function reportHtml(view: ReportView, nonce: string): ReportPage {
  const page = new Page(view);
  return { html: pageOf(page.body(), nonce), actions: page.actions };
}

const VERDICTS: Record<Report["verdict"], { chip: string; plain: string }> = {
  established: { chip: "Cause established", plain: "The text itself shows the cause." },
  "symptom-only": { chip: "Symptom only", plain: "The text shows a failure, but not its cause." },
  "no-failure": { chip: "No failure", plain: "" },
};

/** What the reason of a report is a reason for. */
const WHY: Record<Report["verdict"], string> = {
  established: "Why this came first",
  "symptom-only": "Why this is the first sign",
  "no-failure": "What was seen",
};

/** A place with a longer name stands above its line, not beside it. */
const LONG_LABEL = 22;

/** Builds the body and numbers the actions on the way. */
class Page {
  readonly actions: Action[] = [];
  readonly #report: Report;

  constructor(private readonly view: ReportView) {
    this.#report = view.report;
  }

  body(): Markup {
    const { verdict, initiating } = this.#report;
    return html`<body class="${verdict}">
<main>
<header>
<p class="chips"><span class="chip verdict">${VERDICTS[verdict].chip}</span><span class="subject">${this.view.subject}</span></p>
<h1>${headline(this.#report)}</h1>
${this.#answer()}
</header>
${this.view.notes.map((note) => html`<p class="note">${note}</p>`)}
${initiating && this.#why(initiating)}
${verdict === "symptom-only" && this.#missing()}
${this.#cause()}
${this.#otherFixes()}
${this.#verify()}
${this.#collateral()}
${this.#suspects()}
${verdict !== "symptom-only" && this.#missing()}
${this.#contradictions()}
${this.#earlier()}
${this.#related()}
${this.#read()}
</main>
</body>`;
  }

  // ---------------------------------------------------------------------------------------- the first three lines

  #answer(): Markup {
    const { initiating } = this.#report;
    return html`<dl class="answer">
<dt>What</dt><dd id="what">${what(this.#report)}</dd>
${initiating && html`<dt>Where</dt><dd id="where">${this.#where(initiating)}</dd>`}
<dt>${this.#report.verdict === "no-failure" ? "Note" : "Do"}</dt><dd id="do">${this.#advice()}</dd>
</dl>`;
  }

  #where(initiating: Initiating): Markup {
    const { frame, host, time, evidence } = initiating;
    const first = evidence[0];
    const isOpenable = frame !== null && this.view.place(frame.file, frame.line).opens;
    const parts = [
      rankBadge(initiating, this.#report.read.ranks.length > 0),
      host && html`<span class="host">${host}</span>`,
      frame && this.#frame(frame),
      // A frame of another machine cannot be opened; the line of the log that names it can.
      first && !isOpenable && html`<span>${this.#link(first.file, first.line, first.text)}</span>`,
      time && html`<time>${time}</time>`,
    ].filter((part) => part instanceof Markup);
    return parts.length ? html`${joined(parts, " ")}` : html`The text does not say.`;
  }

  #frame({ file, line, function: name }: Frame): Markup {
    return html`<span>${this.#link(file, line, "")}${name && html` in <code>${name}</code>`}</span>`;
  }

  #advice(): string {
    const { verdict, fix, missing } = this.#report;
    if (verdict === "no-failure") {
      return "A silent fault leaves no trace in a log: this does not prove that the run's numbers are right.";
    }
    if (fix[0]) return fix[0];
    return missing[0] ? `First find out: ${missing[0].fact}` : "The text gives no ground for advice.";
  }

  // ---------------------------------------------------------------------------------------- what supports it

  #why(initiating: Initiating): Markup {
    return section(
      WHY[this.#report.verdict],
      html`${paragraph(initiating.reason)}${this.#evidence(initiating.evidence)}`,
    );
  }

  #cause(): Markup | false {
    const { cause, verdict } = this.#report;
    return cause !== "" && section(verdict === "established" ? "Cause" : "What is known", paragraph(cause));
  }

  #otherFixes(): Markup | false {
    const others = this.#report.fix.slice(1);
    if (!others.length) return false;
    return section("If that is not enough", html`<ul>${others.map((each) => html`<li>${each}</li>`)}</ul>`);
  }

  #verify(): Markup | false {
    const { verify } = this.#report;
    return verify !== null && verify !== "" && section("See that it worked", this.#command(verify, true));
  }

  #collateral(): Markup | false {
    const { collateral } = this.#report;
    if (!collateral.length) return false;
    const entries = collateral.map((each) => this.#consequence(each));
    return section("Only its consequences", html`<ul class="plain">${entries}</ul>`);
  }

  #consequence({ signature, ranks, reason, evidence }: Collateral): Markup {
    return html`<li>
<p>${ranks.length > 0 && html`<span class="rank quiet">${ranksText(ranks)}</span> `}${this.#explain(signature)}</p>
${paragraph(reason)}
${evidence.length > 0 && html`<details><summary>${count(evidence.length, "line")}</summary>${this.#evidence(evidence)}</details>`}
</li>`;
  }

  #suspects(): Markup | false {
    const { suspects } = this.#report;
    if (!suspects.length) return false;
    const entries = suspects.map(
      ({ rank, because }) => html`<li><p><span class="rank quiet">rank ${rank}</span> ${because}</p></li>`,
    );
    return section("Suspects", html`<ul class="plain">${entries}</ul>`);
  }

  #missing(): Markup | false {
    const { missing } = this.#report;
    if (!missing.length) return false;
    return section("Not known", html`<ul class="plain">${missing.map((each) => this.#fact(each))}</ul>`);
  }

  #fact({ fact, how }: Missing): Markup {
    return html`<li><p>${fact}</p>${how !== "" && this.#command(how, false)}</li>`;
  }

  #contradictions(): Markup | false {
    const { contradictions } = this.#report;
    if (!contradictions.length) return false;
    return section("Does not fit together", html`<ul>${contradictions.map((each) => html`<li>${each}</li>`)}</ul>`);
  }

  #earlier(): Markup | false {
    const { earlier } = this.#report;
    if (!earlier.length) return false;
    const entries = earlier.map(({ attempt, rank, exception, message, title, evidence }) => {
      const what = exception === "" ? title || "no failure in this text" : `${exception}: ${message}`;
      const who = rank === null ? "" : rank === "all" ? "all ranks: " : `rank ${rank}: `;
      return html`<li><p>Attempt ${attempt}: ${who}${what}</p>${evidence.length > 0 && this.#evidence(evidence)}</li>`;
    });
    return section("Earlier attempts", html`<ul class="plain">${entries}</ul>`);
  }

  #related(): Markup | false {
    const { initiating, related } = this.#report;
    const ids = [...new Set([...(initiating?.signature ? [initiating.signature] : []), ...related])];
    if (!ids.length) return false;
    return section(
      "Read more",
      html`<p>${joined(
        ids.map((id) => this.#explain(id)),
        " · ",
      )}</p>`,
    );
  }

  #read(): Markup {
    const { files, lines, bytes, ranks, seconds, skipped } = this.#report.read;
    const parts = [count(files, "file"), count(lines, "line"), size(bytes)];
    if (ranks.length) parts.push(ranksText(ranks));
    const left = skipped.map((each) => html`<br>Skipped: ${each}`);
    return html`<footer>Read ${parts.join(", ")} in ${duration(seconds)}, on this machine only.${left}</footer>`;
  }

  // ---------------------------------------------------------------------------------------- parts

  #evidence(evidence: readonly Evidence[]): Markup {
    const lines = evidence.map(
      ({ file, line, text }) =>
        html`<li class="${this.view.place(file, line).label.length > LONG_LABEL && "stacked"}">${this.#link(file, line, text)}<code class="quote">${readable(text)}</code></li>`,
    );
    return html`<ol class="evidence">${lines}</ol>`;
  }

  #link(file: string, line: number, text: string): Markup {
    const { label, opens } = this.view.place(file, line);
    const title = `${file}:${line}`;
    if (!opens) return html`<span class="place" title="${title} (cannot be opened here)">${label}</span>`;
    return html`<a href="#" class="place" title="${title}" data-action="${this.#act({ kind: "open", file, line, text })}">${label}</a>`;
  }

  #explain(id: string): Markup {
    return html`<a href="#" class="id" title="Explain ${id}" data-action="${this.#act({ kind: "explain", id })}">${id}</a>`;
  }

  #command(text: string, insert: boolean): Markup {
    const copy = this.#act({ kind: "copy", text });
    const paste =
      insert && isInsertable(text)
        ? html`<button type="button" data-action="${this.#act({ kind: "insert", text })}">Insert in Terminal</button>`
        : undefined;
    return html`<div class="command"><pre><code>${text}</code></pre>
<p class="buttons"><button type="button" data-action="${copy}" data-done="Copied">Copy</button>${paste}</p></div>`;
  }

  #act(action: Action): number {
    return this.actions.push(action) - 1;
  }
}

/** A line break would run what stands before it; other control characters can do as they like in a shell. */
export function isInsertable(command: string): boolean {
  return !/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(command);
}

function headline({ verdict, initiating }: Report): string {
  if (initiating) return initiating.title || initiating.exception || "Failure";
  return verdict === "no-failure" ? "No failure found" : "What failed first is not shown";
}

function what({ verdict, initiating }: Report): Markup {
  const { plain } = VERDICTS[verdict];
  if (initiating?.exception) {
    const message = shortened(readable(initiating.message), 400);
    return html`<code class="failure"><b>${initiating.exception}</b>${message && `: ${message}`}</code>`;
  }
  if (initiating) return html`${shortened(readable(initiating.message), 400) || plain}`;
  return html`${plain || "No failure stands in this text, or each was handled and the run went on."}`;
}

function rankBadge({ rank, rank_basis }: Initiating, severalRanks: boolean): Markup | undefined {
  if (rank === null) return severalRanks ? html`<span class="rank unknown">rank not stated</span>` : undefined;
  const basis = rank_basis === "inferred" ? html` <small>inferred</small>` : undefined;
  return html`<span class="rank">${rankText(rank)}${basis}</span>`;
}

function rankText(rank: Rank): string {
  return rank === "all" ? "every rank" : `rank ${rank}`;
}

function ranksText(ranks: readonly number[]): string {
  return `${ranks.length === 1 ? "rank" : "ranks"} ${rankRanges(ranks)}`;
}

function section(title: string, content: Markup): Markup {
  return html`<section><h2>${title}</h2>${content}</section>`;
}

function paragraph(text: string): Markup {
  return html`${text && html`<p>${text}</p>`}`;
}

function joined(parts: readonly Markup[], between: string): Markup[] {
  return parts.flatMap((part, at) => (at ? [html`${between}`, part] : [part]));
}

const LONGEST_QUOTE = 800;

/** Colours and marks of the terminal are left out, what remains of control characters is made visible. */
function readable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is replaced.
  return shortened(plainText(text), LONGEST_QUOTE).replace(/[\x00-\x08\x0b-\x1f\x7f]/g, "\u00b7");
}

function shortened(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most)} …` : text;
}

function count(number: number, name: string): string {
  return `${number.toLocaleString("en")} ${name}${number === 1 ? "" : "s"}`;
}

function size(bytes: number): string {
  if (bytes < 1000) return `${bytes} bytes`;
  const [value, unit] = bytes < 1e6 ? [bytes / 1e3, "kB"] : bytes < 1e9 ? [bytes / 1e6, "MB"] : [bytes / 1e9, "GB"];
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

function duration(seconds: number): string {
  return seconds < 1 ? `${Math.max(1, Math.round(seconds * 1000))} ms` : `${seconds.toFixed(1)} s`;
}
