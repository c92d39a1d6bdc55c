import assert from "node:assert/strict";
import { test } from "node:test";
import type { Rank, Report } from "../../src/protocol";
import { isInsertable, type ReportView, reportHtml } from "../../src/report/html";

const established: Report = {
  schema: 1,
  verdict: "established",
  initiating: {
    signature: "dict-key",
    title: "A key is missing",
    rank: 2,
    rank_basis: "stated",
    host: "node7",
    time: "12:01:07",
    exception: "KeyError",
    message: "'laughter'",
    frame: { file: "/job/train.py", line: 41, function: "load" },
    reason: "Rank 2 raised before the others lost it.",
    evidence: [{ file: "/job/run.log", line: 9, text: "[rank2]: KeyError: 'laughter'" }],
  },
  cause: "The dictionary holds no such key.",
  fix: ["Add the key.", "Filter the samples."],
  verify: "python train.py --steps 1",
  collateral: [
    {
      signature: "peer-gone",
      ranks: [0, 1, 3],
      reason: "They lost rank 2.",
      evidence: [{ file: "/job/run.log", line: 20, text: "Connection closed by peer" }],
    },
  ],
  suspects: [],
  missing: [],
  contradictions: ["Two lines give rank 2 different hosts."],
  related: ["peer-gone"],
  read: { files: 1, lines: 1204, bytes: 88_000, ranks: [0, 1, 2, 3], seconds: 0.04, skipped: [] },
  earlier: [],
};

const symptom: Report = {
  ...established,
  verdict: "symptom-only",
  cause: "",
  fix: [],
  verify: null,
  missing: [{ fact: "What rank 7 was doing.", how: "py-spy dump --pid 7" }],
  suspects: [{ rank: 7, because: "It was silent." }],
};

const healthy: Report = {
  ...symptom,
  verdict: "no-failure",
  initiating: null,
  collateral: [],
  missing: [],
  suspects: [],
  contradictions: [],
  related: [],
};

function page(report: Report, view: Partial<ReportView> = {}) {
  const place = (file: string, line: number) => ({ label: `${file.split("/").at(-1)}:${line}`, opens: true });
  return reportHtml({ report, subject: "run.log", notes: [], place, ...view }, "n0nce");
}

/** The words as they are read, without tags. */
function words(html: string): string {
  const body = html.slice(html.indexOf("<main>"), html.indexOf("</main>"));
  return body
    .replace(/<[^>]*>/g, " ")
    .replaceAll("&#39;", "'")
    .replaceAll("&amp;", "&")
    .replace(/\s+/g, " ");
}

function textOf(html: string, id: string): string {
  const [, inner = ""] = new RegExp(`<dd id="${id}">(.*?)</dd>`, "s").exec(html) ?? [];
  return inner
    .replace(/<[^>]*>/g, "")
    .replaceAll("&#39;", "'")
    .replace(/\s+/g, " ")
    .trim();
}

test("the first three lines answer what, where and what to do", () => {
  const { html } = page(established);
  assert.match(words(html), /^ Cause established run\.log A key is missing What KeyError : 'laughter' Where/);
  assert.equal(textOf(html, "what"), "KeyError: 'laughter'");
  assert.equal(textOf(html, "where"), "rank 2 node7 train.py:41 in load 12:01:07");
  assert.equal(textOf(html, "do"), "Add the key.");
});

test("every part of the report stands on the page", () => {
  const all = words(page(established).html);
  for (const part of [
    ...["Rank 2 raised before", "[rank2]: KeyError: 'laughter'", "The dictionary holds", "Filter the samples."],
    ...["python train.py --steps 1", "ranks 0, 1, 3", "They lost rank 2.", "Connection closed by peer"],
    ...["Two lines give rank 2", "Read 1 file, 1,204 lines, 88 kB, ranks 0–3 in 40 ms, on this machine only."],
  ]) {
    assert.ok(all.replaceAll("0–1, 3", "0, 1, 3").includes(part), part);
  }
});

test("each click has a number, and the number its action", () => {
  const { html, actions } = page(established);
  const numbers = [...html.matchAll(/data-action="(\d+)"/g)].map((match) => Number(match[1]));
  assert.deepEqual(
    numbers.toSorted((a, b) => a - b),
    actions.map((_, at) => at),
  );
  const opened = actions.filter((each) => each.kind === "open").map((each) => `${each.file}:${each.line}`);
  assert.deepEqual(opened, ["/job/train.py:41", "/job/run.log:9", "/job/run.log:20"]);
  const command = "python train.py --steps 1";
  assert.ok(actions.some((each) => each.kind === "copy" && each.text === command));
  assert.ok(actions.some((each) => each.kind === "insert" && each.text === command));
  assert.ok(actions.some((each) => each.kind === "explain" && each.id === "peer-gone"));
});

test("what cannot be opened is no link, and the line of the log takes its place", () => {
  const place = (file: string, line: number) => ({ label: `${file}:${line}`, opens: file.endsWith(".log") });
  const { html, actions } = page(established, { place });
  assert.ok(!actions.some((each) => each.kind === "open" && each.file === "/job/train.py"));
  assert.match(html, /<span class="place" title="[^"]*">\/job\/train\.py:41<\/span>/);
  assert.match(textOf(html, "where"), /\/job\/run\.log:9/);
});

const HOSTILE = `</style></script><img src=x onerror="alert(1)">'"&<script>alert(1)</script>`;

test("whatever a log holds stays text", () => {
  const spoil = (value: unknown): unknown => {
    if (typeof value === "string") return value && HOSTILE + value;
    if (Array.isArray(value)) return value.map(spoil);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, spoil(each)]));
  };
  for (const [report, verdict] of [established, symptom, healthy].map((each) => [each, each.verdict] as const)) {
    const bad = { ...(spoil(report) as Report), verdict, schema: 1 as const };
    const { html } = page(bad, { subject: HOSTILE, notes: [HOSTILE], place: () => ({ label: HOSTILE, opens: true }) });
    const clean = page(report, { notes: ["a note"] }).html;
    assert.equal(count(html, /<script/g), 1);
    assert.equal(count(html, /<style/g), 1);
    assert.equal(count(html, /<img/g), 0);
    assert.equal(count(html, /\sonerror="/g), 0);
    assert.deepEqual(tagNames(html), tagNames(clean));
  }
});

function count(text: string, pattern: RegExp): number {
  return [...text.matchAll(pattern)].length;
}

function tagNames(html: string): string[] {
  return [...new Set([...html.matchAll(/<(\w+)/g)].map((match) => match[1] ?? ""))].sort();
}

test("the page may run its own script and load nothing", () => {
  const { html } = page(established);
  const [, policy] = /Content-Security-Policy" content="([^"]*)"/.exec(html) ?? [];
  assert.equal(policy, "default-src &#39;none&#39;; style-src &#39;nonce-n0nce&#39;; script-src &#39;nonce-n0nce&#39;");
  assert.equal(count(html, /\sstyle="/g), 0);
  assert.equal(count(html, /https?:\/\//g), 0);
  assert.equal(count(html, /href="(?!#")/g), 0);
});

test("a symptom is not called a cause, and the missing fact is the next step", () => {
  const { html, actions } = page(symptom);
  const all = words(html);
  assert.match(all, /^ Symptom only /);
  assert.equal(textOf(html, "do"), "First find out: What rank 7 was doing.");
  assert.ok(!/ Cause | came first /.test(all));
  assert.ok(all.indexOf("Not known What rank 7") < all.indexOf("Only its consequences"));
  assert.ok(all.includes("rank 7 It was silent."));
  const how = "py-spy dump --pid 7";
  assert.deepEqual(
    actions.filter((each) => "text" in each && each.text === how).map((each) => each.kind),
    ["copy"],
  );
});

test("a symptom without anything that came first says that this is not shown", () => {
  const { html } = page({ ...symptom, initiating: null });
  assert.match(words(html), /What failed first is not shown What The text shows a failure, but not its cause\./);
  assert.ok(!html.includes('id="where"'));
});

test("no failure is said plainly, and not as more than it is", () => {
  const { html, actions } = page(healthy);
  assert.match(words(html), /^ No failure run\.log No failure found /);
  assert.match(textOf(html, "do"), /does not prove/);
  assert.deepEqual(actions, []);
});

test("the rank is shown as it is known", () => {
  const where = (rank: Rank | null, basis: "stated" | "inferred" | null, ranks: number[]) => {
    const initiating = { ...established.initiating, rank, rank_basis: basis } as Report["initiating"];
    return textOf(page({ ...established, initiating, read: { ...established.read, ranks } }).html, "where");
  };
  assert.match(where(2, "inferred", [0, 2]), /^rank 2 inferred /);
  assert.match(where(0, "stated", [0]), /^rank 0 node7/);
  assert.match(where("all", "stated", [0, 1]), /^every rank /);
  assert.match(where(null, null, [0, 1]), /^rank not stated /);
  assert.match(where(null, null, []), /^node7 /);
});

test("earlier attempts and what was not read are told", () => {
  const evidence = [{ file: "/job/run.log", line: 4, text: "ValueError: 7" }];
  const failed = { attempt: 1, signature: "user-exception", title: "An exception", rank: 1, exception: "ValueError" };
  const nothing = { attempt: 2, signature: null, title: "", rank: null, exception: "", message: "", evidence: [] };
  const earlier = [{ ...failed, message: "7", evidence }, nothing];
  const read = { ...established.read, skipped: ["core.7 is a binary file, not a log."] };
  const all = words(page({ ...established, earlier, read }).html);
  assert.match(all, /Earlier attempts Attempt 1: rank 1: ValueError: 7 run\.log:4/);
  assert.match(all, /Attempt 2: no failure in this text/);
  assert.match(all, /Skipped: core\.7 is a binary file/);
  assert.ok(!words(page(established).html).includes("Earlier attempts"));
});

test("escapes of the terminal are not shown, other control characters are", () => {
  const evidence = [{ file: "/job/run.log", line: 9, text: "\x1b[31mKeyError\x1b[0m \x00'a'" }];
  const initiating = { ...established.initiating, evidence } as Report["initiating"];
  assert.ok(words(page({ ...established, initiating }).html).includes("KeyError ·'a'"));
});

test("a command with a line break or a control character is not put into a terminal", () => {
  assert.ok(isInsertable("python train.py --note 'größer'"));
  for (const bad of ["a\nb", "a\rb", "a\x03", "\x1b[A", "a\u202eb", "a\u2028b"]) assert.ok(!isInsertable(bad), bad);
  const { actions } = page({ ...established, verify: "export A=1\npython train.py" });
  assert.ok(actions.some((each) => each.kind === "copy" && each.text.includes("\n")));
  assert.ok(!actions.some((each) => each.kind === "insert"));
});
