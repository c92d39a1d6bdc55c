// What a workspace that is not trusted can make Firstfault do: read, and nothing else.
import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before } from "node:test";
import { lineOf } from "../examples.mjs";
import { openProject, stepsOf } from "../project.mjs";
import { until } from "../server.mjs";

let project, workbench, page;
const step = stepsOf(() => workbench);

before(async () => {
  project = await openProject("trust", { trusted: false, prepare: setTraps });
  ({ workbench, page } = project);
});
after(() => project?.close());

/** A workspace with an interpreter of its own in .venv, and a setting that names another; both leave a mark when they run. */
function setTraps(folder) {
  for (const interpreter of [".venv/bin/python", "named/python"]) {
    const file = path.join(folder, interpreter);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, `#!/bin/sh\ntouch '${file}.ran'\nexec python3 "$@"\n`);
    chmodSync(file, 0o755);
  }
  mkdirSync(path.join(folder, ".vscode"), { recursive: true });
  const setting = { "firstfault.interpreter": path.join(folder, "named/python") };
  writeFileSync(path.join(folder, ".vscode/settings.json"), JSON.stringify(setting));
}

const ran = (interpreter) => existsSync(path.join(project.folder, `${interpreter}.ran`));

step("reading works and no interpreter of the workspace is run", async () => {
  await workbench.openFile("train.py");
  await until("squiggles", async () => (await workbench.squiggledLines("train.py")).length > 0);
  await workbench.shot("squiggles");
  await workbench.openFile("run.log");
  await workbench.selectLines(
    lineOf(project.folder, "run.log", "[rank2]: Traceback"),
    lineOf(project.folder, "run.log", "KeyError"),
  );
  await workbench.command("Firstfault: Diagnose Selection");
  await workbench.panel().locator("#what", { hasText: "KeyError" }).waitFor();
  await workbench.shot("report");
  assert.deepEqual([ran(".venv/bin/python"), ran("named/python")], [false, false]);
});

step("no script is measured", async () => {
  await workbench.openFile("train.py");
  await workbench.command("Firstfault: Measure This Training Loop");
  const message = workbench.notification("This workspace is not trusted, so nothing in it is run.");
  await message.locator(".monaco-button", { hasText: "Manage Workspace Trust" }).waitFor();
  assert.deepEqual([ran(".venv/bin/python"), ran("named/python")], [false, false]);
});

step("the traps do work: once the workspace is trusted, its interpreters are run", async () => {
  await workbench.command("Workspaces: Manage Workspace Trust");
  await page.locator(".workspace-trust-buttons-row .monaco-button", { hasText: "Trust" }).first().click();
  // The server that runs is kept: trust alone is no reason to start another.
  await workbench.command("Firstfault: Restart Server");
  await until("the named one to be run", () => ran("named/python"));
  rmSync(path.join(project.folder, ".vscode/settings.json"));
  await until("the one in .venv to be run", () => ran(".venv/bin/python"));
  await workbench.shot("trusted");
});
