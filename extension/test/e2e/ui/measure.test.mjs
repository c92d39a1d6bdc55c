// Prove, as a user meets it: a suspected fault is measured on the real script, and the squiggle says the number.
import assert from "node:assert/strict";
import { chmodSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before } from "node:test";
import { lineOf } from "../examples.mjs";
import { openProject, stepsOf } from "../project.mjs";
import { REPOSITORY, until } from "../server.mjs";

const MEAN = "            loss = loss / ACCUMULATION_STEPS";
const MEASURE = "Firstfault: Measure This Training Loop";
/** The Python that has torch: that of the repository's own tests. */
const TORCH = path.resolve(REPOSITORY, process.env.BIN ?? ".venv/bin", "python");

let project, workbench, page;
const step = stepsOf(() => workbench);

before(async () => {
  project = await openProject("measure", { prepare: putPython });
  ({ workbench, page } = project);
});
after(() => project?.close());

/** An environment in the workspace, of which only the interpreter is needed. */
function putPython(folder) {
  const file = path.join(folder, ".venv/bin/python");
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, `#!/bin/sh\nexec '${TORCH}' "$@"\n`);
  chmodSync(file, 0o755);
}

step("the user is asked how a script is run, once, and whether it may be; without a yes nothing runs", async () => {
  const mean = lineOf(project.folder, "train.py", MEAN);
  await workbench.openFile("train.py");
  await workbench.goTo(mean, 13);
  await until("the squiggle", async () => (await workbench.squiggledLines("train.py")).includes(mean));
  await workbench.command(MEASURE);
  const input = page.locator(".quick-input-widget:visible input.input");
  await until("the suggestion", async () => (await input.inputValue()) === ".venv/bin/python train.py");
  await workbench.shot("asked");
  await page.keyboard.press("Enter");
  await dialog().filter({ hasText: "checkpoints, logs and uploads" }).waitFor();
  await workbench.shot("may-it-run");
  await dialog().locator(".monaco-button", { hasText: "Cancel" }).click();
  await workbench.command(MEASURE);
  await dialog().filter({ hasText: ".venv/bin/python train.py" }).waitFor();
  await dialog().locator(".monaco-button", { hasText: "Cancel" }).click();
  assert.equal(await page.locator("iframe.webview").count(), 0, "something was measured");
});

step("a script is measured as it last ran in a terminal", async () => {
  const files = readdirSync(project.folder);
  await workbench.newTerminal();
  await workbench.typeInTerminal(".venv/bin/python train.py --seed 7");
  await until("the command", async () => /--seed 7\n/.test(await workbench.terminalText()));
  await page.keyboard.press("Control+C");
  await until("the next prompt", async () => /\n\$\s*$/.test((await workbench.terminalText()).trimEnd()));
  await page.keyboard.press("Control+J");
  await workbench.openFile("train.py");
  await workbench.command(MEASURE);
  await dialog().filter({ hasText: "train.py --seed 7" }).waitFor();
  await dialog().locator(".monaco-button", { hasText: "Run" }).click();
  const verdict = workbench.panel().locator(".verdicts li", { hasText: "GA101" });
  await verdict.waitFor();
  assert.match(await verdict.textContent(), /proven.*train\.py:60.*times as much as another/s);
  assert.match(await workbench.panel().locator(".subject").textContent(), /train\.py --seed 7$/);
  assert.deepEqual(readdirSync(project.folder), files, "something was written beside the script");
});

step("a place of the page opens in the editor", async () => {
  await workbench.panel().locator(".verdicts .place", { hasText: "train.py:60" }).click();
  await until("the line", async () => (await workbench.position()).startsWith("Ln 60,"));
});

step("the squiggle says the number, until the text changes", async () => {
  await workbench.openFile("train.py");
  await workbench.picture("prove", () => workbench.goTo(lineOf(project.folder, "train.py", MEAN), MEAN.length));
  await page.keyboard.press("Control+Shift+M");
  const proven = page.locator(".markers-panel .monaco-list-row", { hasText: "Proven: One target weighs up to" });
  await proven.waitFor();
  await workbench.shot("problems");
  await workbench.openFile("train.py");
  await page.keyboard.press("End");
  await page.keyboard.type(" ");
  await proven.waitFor({ state: "detached" });
  await page.keyboard.press("Control+Z");
  await proven.waitFor();
  await page.keyboard.press("Control+J");
});

step("a fix is proved before it is applied", async () => {
  await workbench.openFile("train.py");
  await workbench.goTo(lineOf(project.folder, "train.py", MEAN), MEAN.length);
  const offer = page.locator(".action-widget .monaco-list-row", { hasText: "Prove this fix on a run: Weigh every" });
  await workbench.retry(async () => {
    await page.keyboard.press("Control+.");
    await offer.waitFor({ timeout: 10_000 });
  });
  await workbench.shot("offer");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  const panel = workbench.panel();
  await panel.locator(".chip", { hasText: /^proved$/ }).waitFor();
  assert.match(await panel.locator(".compared").textContent(), /Ratio of the target weights2\.30\d+1\.00001/);
  await workbench.shot("fix-proved");
  await panel.locator("button", { hasText: "Apply Fix" }).click();
  await until("the fix", async () => (await workbench.text("train.py")).includes("window_tokens"));
  await page.locator('.monaco-editor.focused[data-uri$="/train.py"]').waitFor();
  await page.keyboard.press("Control+Z");
  await until("the text as it was", async () => !(await workbench.text("train.py")).includes("window_tokens"));
});

const dialog = () => page.locator(".monaco-dialog-box");
