import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import type { FixProof, Measurement } from "../../src/protocol";
import { parsed, runs, suggested, typed } from "../../src/prove/commandLine";
import { fixHtml } from "../../src/prove/fixHtml";
import { type MeasurementView, measurementHtml } from "../../src/prove/html";
import { pictureOf } from "../../src/prove/picture";

const PICTURE = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 768 276" role="img">
<title>Weight of one target in each micro-batch</title>
<style>text { fill: #333 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } }
</style>
<text x="64.0" y="20.0" >Weight of one target</text>
<rect class="bar high" x="64.0" y="68.0" width="64.0" height="140.0">
<title>micro-batch 1: 10 targets of weight 0.05</title></rect>
<line class="line" x1="64" x2="704" y1="180.0" y2="180.0"/>
</svg>`;

const row = { rank: 0, loss: "cross_entropy", reduction: "mean", file: "/job/train.py", line: 19, dropped: false };
const measured: Measurement = {
  schema: 1,
  ended: "Stopped after 2 windows, as planned.",
  ranks: [{ rank: 0, pid: 4711, python: "3.11.7", torch: "2.13.0" }],
  windows: [
    {
      index: 0,
      complete: true,
      micro_batches: [
        { ...row, number: 0, targets: 10, weight: 0.05, share: 0.5, right_share: 0.1 },
        { ...row, number: 1, targets: 90, weight: 0.00555555, share: 0.5, right_share: 0.9 },
      ],
      ratio: 9,
      mass: 1,
      ledger: [],
      gradient: null,
      values: {},
      state: "",
      remarks: ["calls: 2 x backward, step, zero_grad"],
    },
  ],
  verdicts: [
    {
      code: "GA101",
      name: "mean-of-means",
      state: "proven",
      message: "One target weighs up to 9 times as much as another.",
      file: "/job/train.py",
      line: 20,
      suspected: true,
    },
    {
      code: "BN501",
      name: "batchnorm-under-accumulation",
      state: "refuted",
      message: "No BatchNorm layer was in training mode.",
      file: "/job/train.py",
      line: 9,
      suspected: true,
    },
    {
      code: "GA207",
      name: "schedule-per-micro-batch",
      state: "not measured",
      message: "No schedule was stepped.",
      file: null,
      line: null,
      suspected: true,
    },
  ],
  notes: [{ probe: "gradient", why: "the model is sharded" }],
  right: ["GA102 undivided-loss"],
  picture: PICTURE,
  printed: "begins\n",
  command: ["/job/.venv/bin/python", "train.py"],
};

const view: MeasurementView = {
  measurement: measured,
  command: ".venv/bin/python train.py",
  folder: "/job",
  label: (file, line) => `${file.split("/").at(-1)}:${line}`,
};

const page = (more: Partial<Measurement> = {}, rest: Partial<MeasurementView> = {}) =>
  measurementHtml({ ...view, ...rest, measurement: { ...measured, ...more } }, "n0nce");

const words = (html: string) =>
  html
    .replace(/^.*<body/s, "<body")
    .replace(/<script.*$/s, "")
    .replace(/<[^>]*>/g, " ")
    .replace(/\s+/g, " ");

test("the verdicts come first, then the numbers, then how it ran", () => {
  const all = words(page().html);
  let at = 0;
  for (const part of [
    ...["1 proven", "1 refuted", "1 not measured", "GA101 mean-of-means is proven"],
    ...["train.py:20", "One target weighs up to 9 times", "No BatchNorm layer", "No schedule was stepped."],
    ...["Stopped after 2 windows, as planned. Python 3.11.7, torch 2.13.0."],
    ...["Window 1", "cross_entropy at", "train.py:19", "9.0000", "1.0000", "1 10 0.05 50.0 % 10.0 %"],
    ...[
      "2 90 0.005556 50.0 % 90.0 %",
      "calls: 2 x backward",
      "GA102 undivided-loss",
      "gradient: the model is sharded",
      "begins",
      "/job",
    ],
  ]) {
    const found = all.indexOf(part, at);
    assert.ok(found >= 0, `${part} is missing, or stands too early, in ${all}`);
    at = found;
  }
});

test("each click has a number, and the number its action", () => {
  const { html, actions } = page();
  const numbers = [...html.matchAll(/data-action="(\d+)"/g)].map((match) => Number(match[1]));
  assert.deepEqual(
    numbers.toSorted((a, b) => a - b),
    actions.map((_, at) => at),
  );
  assert.deepEqual(actions[0], { kind: "explain", id: "GA101" });
  assert.deepEqual(actions[1], { kind: "open", file: "/job/train.py", line: 20 });
  assert.deepEqual(actions.slice(-2), [{ kind: "again" }, { kind: "change" }]);
});

test("what was not measured is never called right", () => {
  const nothing = { windows: [], verdicts: [], right: [], ranks: [] };
  assert.match(words(page(nothing).html), /Nothing could be measured/);
  const open = measured.verdicts.filter((each) => each.state === "not measured");
  assert.match(words(page({ verdicts: open }).html), /One finding stays open/);
  const refuted = measured.verdicts.filter((each) => each.state === "refuted");
  assert.match(words(page({ verdicts: refuted }).html), /What was suspected is refuted/);
  assert.match(words(page({ verdicts: [] }).html), /No fault was measured/);
  const unfinished = measured.windows.map((each) => ({ ...each, complete: false, state: "no optimizer step" }));
  assert.match(
    words(page({ verdicts: [], windows: unfinished }).html),
    /Nothing could be measured .*no optimizer step/,
  );
});

test("numbers that are not finite are said so", () => {
  const windows = measured.windows.map((each) => ({ ...each, ratio: null, mass: null }));
  assert.match(words(page({ windows }).html), /ratio not finite/);
});

const HOSTILE = `</style></script><img src=x onerror="alert(1)">'"&<script>alert(1)</script>`;

test("whatever a script prints or is called stays text", () => {
  const spoil = (value: unknown, key = ""): unknown => {
    if (typeof value === "string") return key === "state" && value ? value : value && HOSTILE + value;
    if (Array.isArray(value)) return value.map((each) => spoil(each));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, spoil(each, name)]));
  };
  const spoilt = spoil(measured) as Measurement;
  const { html } = page(spoilt, { command: HOSTILE, folder: HOSTILE, label: () => HOSTILE });
  const clean = page({ picture: "" }).html;
  const count = (text: string, tag: string) => text.split(tag).length;
  for (const tag of ["<script", "<style", "</style", "</script"])
    assert.equal(count(html, tag), count(clean, tag), tag);
  assert.doesNotMatch(html, /<img/);
  const policy = "default-src 'none'; style-src 'nonce-n0nce'; script-src 'nonce-n0nce'";
  assert.ok(html.includes(`content="${policy.replaceAll("'", "&#39;")}"`));
});

test("the picture is shapes and words alone, in the page's own style", () => {
  const drawn = pictureOf(PICTURE)?.text ?? "";
  assert.match(drawn, /<rect class="bar high"/);
  assert.doesNotMatch(drawn, /<style/);
  for (const other of [
    ...['<image href="x"/>', '<a href="x">', '<rect onload="x"/>', "<script>x</script>", '<rect style="x"/>'],
    ...["<foreignObject>", "<!-- -->", '<text x="1"', "<style>a</style><style>b"],
  ]) {
    assert.equal(pictureOf(PICTURE.replace("<line", `${other}<line`)), undefined, other);
  }
  assert.equal(pictureOf("<p></p>"), undefined);
  assert.equal(pictureOf(""), undefined);
});

const after = { ...measured, verdicts: [], ended: "Stopped after 2 windows." };
const proof: FixProof = {
  proved: true,
  why: "",
  code: "GA101",
  name: "mean-of-means",
  title: "Weigh every token the same",
  compared: [
    { what: "Ratio", before: "9.0000", after: "1.0000", wanted: "1", right: true },
    { what: "Optimizer steps", before: "2", after: "1", wanted: "2", right: false },
  ],
  before: measured,
  after,
  version: 3,
  edits: [],
};
const fixView = { proof, command: "python train.py", folder: "/job", script: "train.py" };

test("a fix that is proved says so with its numbers, and can be applied", () => {
  const { html, actions } = fixHtml(fixView, "n0nce");
  assert.match(words(html), /^ ?proved python train\.py Weigh every token the same proved GA101 mean-of-means Over 1 /);
  assert.match(words(html), /Ratio 9\.0000 1\.0000 1 Optimizer steps 2 1 2 Apply Fix/);
  assert.match(html, /<td class="right">1\.0000<.*<td class="wrong">1</s);
  assert.deepEqual(
    actions.map(({ kind }) => kind),
    ["explain", "apply", "again"],
  );
  assert.match(html, /class="primary" data-action="1"/);
  assert.equal(html.match(/<svg/g)?.length, 2);
});

test("faults that were there before are not hidden by a fix of another", () => {
  const left = { ...after, verdicts: measured.verdicts.map((each) => ({ ...each, code: "BN501" })) };
  const { html } = fixHtml({ ...fixView, proof: { ...proof, after: left } }, "n0nce");
  assert.match(words(html), /No other fault came with it\. Still proven, as before: BN501\./);
});

test("a fix that is not proved says why, and nothing is called proved", () => {
  const why = "GA101 is not measured on the script as it stands.";
  const { html } = fixHtml({ ...fixView, proof: { ...proof, proved: false, why, after: null, compared: [] } }, "n0nce");
  assert.ok(words(html).includes(why));
  assert.doesNotMatch(words(html).replaceAll("not proved", ""), /\bproved\b/);
  assert.doesNotMatch(html, /class="primary"/);
});

test("whatever a fix is called stays text", () => {
  const bad = { ...proof, title: HOSTILE, why: HOSTILE, name: HOSTILE, code: HOSTILE, proved: false };
  const compared = [{ what: HOSTILE, before: HOSTILE, after: HOSTILE, wanted: HOSTILE, right: true }];
  const view = { proof: { ...bad, compared }, command: HOSTILE, folder: HOSTILE, script: HOSTILE };
  const { html } = fixHtml(view, "n0nce");
  assert.equal(html.match(/<script/g)?.length, 1);
  assert.doesNotMatch(html, /<img/);
});

test("a command is split as a shell splits it", () => {
  const words = (line: string, platform: NodeJS.Platform = "linux") => parsed(line, platform)?.words;
  assert.deepEqual(words("python train.py --lr 1e-3"), ["python", "train.py", "--lr", "1e-3"]);
  assert.deepEqual(words(`python 'my train.py' "a \\"b\\"" c\\ d ''`), ["python", "my train.py", 'a "b"', "c d", ""]);
  assert.deepEqual(words("python train.py model.layers=[1,2]"), ["python", "train.py", "model.layers=[1,2]"]);
  assert.deepEqual(words("C:\\py\\python.exe 'x", "win32"), ["C:\\py\\python.exe", "'x"]);
  assert.deepEqual(parsed("CUDA_VISIBLE_DEVICES=0 A='b c' python t.py --x=1", "linux"), {
    words: ["python", "t.py", "--x=1"],
    env: { CUDA_VISIBLE_DEVICES: "0", A: "b c" },
  });
});

test("what only a shell understands is not guessed", () => {
  for (const line of [
    ...["python train.py | tee log", "cd x && python train.py", "python train.py > log", "python $SCRIPT"],
    ...['python "$SCRIPT"', "python *.py", "python ~/train.py", "python train.py # quick", "python 'train.py", ""],
    ...["A=1", "python train.py\nrm x", "python `x`", "(python train.py)", "python {a,b}.py"],
  ]) {
    assert.equal(parsed(line, "linux"), undefined, line);
  }
});

test("a command that is typed again is the same command", () => {
  for (const line of [`A='b c' python 'my train.py' --x="it's" ''`, "torchrun --nproc-per-node=2 train.py"]) {
    const command = parsed(line, "linux");
    assert.ok(command);
    assert.deepEqual(parsed(typed(command), "linux"), command);
  }
});

test("the command that runs a script is known by its path or its module", () => {
  const is = (line: string, script: string, cwd = "/job") => {
    const command = parsed(line, "linux");
    return command !== undefined && runs(command, cwd, script, path.posix);
  };
  assert.ok(is("python train.py", "/job/train.py"));
  assert.ok(is("torchrun --nproc-per-node=2 src/train.py --x 1", "/job/src/train.py"));
  assert.ok(is("python -m src.train", "/job/src/train.py"));
  assert.ok(is("python ../job/train.py", "/job/train.py", "/other"));
  assert.ok(!is("python train.py", "/job/other/train.py"));
  assert.ok(!is("vim notes.txt", "/job/train.py"));
});

test("what is suggested is short where it can be", () => {
  assert.equal(suggested("/job/.venv/bin/python", "/job/train.py", "/job", path.posix), ".venv/bin/python train.py");
  assert.equal(suggested("/usr/bin/python3", "/job/a b.py", "/job", path.posix), "/usr/bin/python3 'a b.py'");
});
