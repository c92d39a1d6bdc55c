/** A fix as a page: whether it is proved, the numbers with it and without it, and the button that applies it. Pure. */

import type { Compared, FixProof, Measurement } from "../protocol";
import { html, type Markup } from "../report/markup";
import { type Action, whole } from "./html";
import { pictureOf } from "./picture";

export interface FixView {
  proof: FixProof;
  command: string;
  folder: string;
  /** The name of the script. */
  script: string;
}

export function fixHtml(
  { proof, command, folder, script }: FixView,
  nonce: string,
): { html: string; actions: Action[] } {
  const { proved, code, name, title, why, compared, before, after } = proof;
  const actions: Action[] = [{ kind: "explain", id: code }, { kind: "apply" }, { kind: "again" }];
  const body = html`<body class="measured">
<main>
<header>
<p class="chips"><span class="chip ${proved ? "refuted" : "open"}">${proved ? "proved" : "not proved"}</span><span class="subject"><code>${command}</code></span></p>
<h1>${title}</h1>
</header>
<ul class="verdicts"><li class="${proved ? "refuted" : "open"}">
<p><span class="state">${proved ? "proved" : "not proved"}</span> <a href="#" class="id" title="Explain ${code}" data-action="0">${code} ${name}</a></p>
<p>${proved ? sentence(proof) : why}</p>
</li></ul>
${compared.length > 0 && html`<section>${table(compared)}</section>`}
<p class="buttons"><button type="button" class="${proved && "primary"}" data-action="1">Apply Fix</button><button type="button" data-action="2">Measure Again</button></p>
${picture("As it stands", before)}
${after !== null && picture("With the fix", after)}
<section><h2>How the runs ended</h2><p>As it stands: ${before.ended}</p>${after !== null && html`<p>With the fix: ${after.ended}</p>`}</section>
<footer><p>${script} ran in ${folder}, on this machine only. With the fix it ran from a copy in a temporary folder; the file is as it was.</p></footer>
</main>
</body>`;
  return { html: whole(body, nonce), actions };
}

function sentence({ code, before, after }: FixProof): string {
  const steps = before.windows.filter((each) => each.complete).length;
  const many = steps === 1 ? "1 optimizer step" : `${steps} optimizer steps`;
  const left = new Set(after?.verdicts.filter((each) => each.state === "proven").map((each) => each.code));
  const others = left.size ? ` Still proven, as before: ${[...left].join(", ")}.` : "";
  return `Over ${many}, ${code} is proven on the script as it stands and refuted with the fix. No other fault came with it.${others}`;
}

function table(compared: readonly Compared[]): Markup {
  const rows = compared.map(
    ({ what, before, after, wanted, right }) =>
      html`<tr><th scope="row">${what}</th><td>${before}</td><td class="${right ? "right" : "wrong"}">${after}</td><td>${wanted}</td></tr>`,
  );
  return html`<table class="compared"><thead><tr><th></th><th>as it stands</th><th>with the fix</th><th>wanted</th></tr></thead><tbody>${rows}</tbody></table>`;
}

function picture(title: string, { windows, picture }: Measurement): Markup | false {
  if (!windows.some((each) => each.micro_batches.length)) return false;
  const drawn = pictureOf(picture);
  return drawn !== undefined && html`<section><h2>${title}</h2><figure>${drawn}</figure></section>`;
}
