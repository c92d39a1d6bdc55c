// Diagnose, as a user meets it: a log in the editor and a traceback in the terminal become a report beside the source.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { lineOf } from "../examples.mjs";
import { openProject, stepsOf } from "../project.mjs";
import { until } from "../server.mjs";

let project, workbench, page;
const step = stepsOf(() => workbench);

before(async () => {
  project = await openProject("diagnose");
  ({ workbench, page } = project);
});
after(() => project?.close());

/** Waits for a report whose three answers hold these texts. */
async function reportWith(answers) {
  const panel = workbench.panel();
  for (const [id, text] of Object.entries(answers)) await panel.locator(`#${id}`, { hasText: text }).waitFor();
  return panel;
}

/** Follows the link of "Where", which must open the file at the line. */
async function followsTo(panel, file, line) {
  await panel.locator("#where a.place").click();
  await page.locator(".tab.active", { hasText: file }).waitFor();
  await until(`the caret on line ${line}`, async () => (await workbench.position()).startsWith(`Ln ${line},`));
}

step("a traceback selected in a log gives exception, rank and frame, and the link opens the line", async () => {
  const first = lineOf(project.folder, "run.log", "[rank2]: Traceback");
  const last = lineOf(project.folder, "run.log", "KeyError: 'laughter'");
  await workbench.openFile("run.log");
  await workbench.selectLines(first, last);
  await workbench.command("Firstfault: Diagnose Selection");
  const panel = await reportWith({ what: "KeyError", where: "ddp_fault.py:35" });
  assert.match(await panel.locator("#where .rank").textContent(), /\b2\b/);
  await workbench.shot("selection");
  const fault = lineOf(project.folder, "ddp_fault.py", "LABELS[self.kinds[index]]");
  assert.equal(fault, 35, "the log and the script of examples/ do not fit together");
  await followsTo(panel, "ddp_fault.py", fault);
  await workbench.shot("link");
});

step("the whole log gives the same first failure, and the other ranks as its consequences", async () => {
  await workbench.openFile("run.log");
  await workbench.command("Firstfault: Diagnose File");
  const panel = await reportWith({ what: "KeyError", where: "rank 2" });
  await panel.getByText("ranks 1, 3").first().waitFor();
  await workbench.picture("diagnose", () => workbench.goTo(lineOf(project.folder, "run.log", "KeyError: 'laughter'")));
  await panel.locator("ol.evidence a.place").first().click();
  await until("the cited line", async () => (await workbench.position()).startsWith("Ln 28,"));
  await workbench.shot("evidence");
});

step("Problems holds the failure at the user's frame", async () => {
  await page.keyboard.press("Control+Shift+M");
  const problem = page.locator(".markers-panel .monaco-list-row", { hasText: "KeyError" }).first();
  await problem.waitFor();
  assert.match(await problem.textContent(), /Ln 35\b/);
  await workbench.shot("problems");
});

step("a command of the report is copied or written at the prompt, and never run", async () => {
  await workbench.newTerminal();
  const command = workbench
    .panel()
    .locator(".command", { has: page.locator("button", { hasText: "Insert in Terminal" }) });
  const text = await command.locator("code").first().textContent();
  await command.getByRole("button", { name: "Copy" }).click();
  await until("the command on the clipboard", async () => (await clipboard()) === text);
  await command.getByRole("button", { name: "Insert in Terminal" }).click();
  // The terminal breaks a long line; a new prompt behind it would show that it was run.
  const packed = (shown) => shown.replace(/\s/g, "");
  await until("the command at the prompt", async () => packed(await workbench.terminalText()) === packed(`$ ${text}`));
  await workbench.shot("inserted");
  await page.keyboard.press("Control+C");
});

step("the last command of the terminal is diagnosed", async () => {
  await workbench.typeInTerminal("python3 crash.py");
  await until("the traceback", async () => /base 10: 'unknown'/.test(await workbench.terminalText()));
  await workbench.command("Firstfault: Diagnose Last Command");
  await followsTo(await reportWith({ what: "ValueError", where: "parse_entry" }), "crash.py", 10);
  await workbench.shot("last-command");
});

step("a traceback selected in the terminal is diagnosed, from the palette and by the key", async () => {
  await page.evaluate(() => navigator.clipboard.writeText("kept"));
  for (const way of ["palette", "key"]) {
    await otherReport();
    await workbench.dragInTerminal("Traceback", "ValueError");
    await workbench.shot(`terminal-selection-${way}`);
    if (way === "palette") await workbench.command("Firstfault: Diagnose Terminal Selection");
    else await page.keyboard.press("Control+Alt+F");
    await followsTo(await reportWith({ what: "ValueError", where: "parse_entry" }), "crash.py", 10);
    await workbench.shot(`terminal-report-${way}`);
  }
  assert.equal(await clipboard(), "kept", "the user's clipboard is another now");
});

step("a folder of rank logs is one job, from the explorer's menu", async () => {
  await workbench.chooseFromMenu(workbench.explorerRow("logs"), "Diagnose Folder");
  const panel = await reportWith({ what: "KeyError", where: "ddp_fault.py:35" });
  assert.match(await panel.locator("#where .rank").textContent(), /\b2\b/);
  await workbench.shot("folder");
});

/** Another report in the panel, so that the next one is seen to come. */
async function otherReport() {
  await workbench.openFile("run.log");
  await workbench.command("Firstfault: Diagnose File");
  await reportWith({ what: "KeyError" });
}

const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
