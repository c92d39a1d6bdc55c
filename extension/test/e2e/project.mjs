// What a test starts from: a copy of examples/ in a workbench that goes away with the test.
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { test } from "node:test";
import { folderUrl, REPOSITORY, startServer, stopServer } from "./server.mjs";
import { launchBrowser, SHOTS, TEST_SETTINGS, Workbench } from "./workbench.mjs";

/** A copy of examples/ in a temporary folder, which tests may change. */
export function copyExamples() {
  const parent = mkdtempSync(path.join(os.tmpdir(), "firstfault-project-"));
  const folder = path.join(parent, "examples");
  cpSync(path.join(REPOSITORY, "examples"), folder, {
    recursive: true,
    filter: (file) => !file.includes("__pycache__"),
  });
  return { folder, remove: () => rmSync(parent, { recursive: true, force: true }) };
}

/** A workbench with the extension and a project; `prepare(folder)` may add files before it opens. */
export async function openProject(prefix, { prepare, ...options } = {}) {
  const project = copyExamples();
  const opened = { folder: project.folder };
  opened.close = async () => {
    if (opened.workbench) writeLog(prefix, opened.workbench.console);
    await opened.browser?.close();
    if (opened.server) await stopServer(opened.server);
    project.remove();
  };
  try {
    await prepare?.(project.folder);
    opened.server = await startServer({ ...options, settings: { ...TEST_SETTINGS, ...options.settings } });
    Object.assign(opened, await launchBrowser());
    opened.workbench = new Workbench(opened.page, prefix);
    await opened.workbench.open(folderUrl(opened.server, project.folder));
    return opened;
  } catch (error) {
    await opened.workbench?.shot("not-opened").catch(() => {});
    await opened.close();
    throw error;
  }
}

function writeLog(prefix, lines) {
  mkdirSync(SHOTS, { recursive: true });
  writeFileSync(path.join(SHOTS, `${prefix}-console.log`), lines.join("\n"));
}

/** One step of a journey; a failure leaves a screenshot. `current` gives the workbench, which opens after the steps are named. */
export const stepsOf = (current) => (name, run) =>
  test(name, { timeout: 240_000 }, async (context) => {
    try {
      await run(context);
    } catch (error) {
      await current()
        ?.shot(`FAILED-${name.replace(/\W+/g, "-").slice(0, 50)}`)
        .catch(() => {});
      throw error;
    }
  });
