// What a test starts from: a copy of examples/ in a workbench that goes away with the test.
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { copyExamples } from "./examples.mjs";
import { folderUrl, startServer, stopServer } from "./server.mjs";
import { launchBrowser, SHOTS, TEST_SETTINGS, Workbench } from "./workbench.mjs";

/** A workbench with the extension and a project; `prepare(folder)` may add files before it opens, and give options. */
export async function openProject(prefix, { prepare, ...options } = {}) {
  const folder = copyExamples();
  const opened = { folder };
  opened.close = async () => {
    if (opened.workbench) writeLog(prefix, opened.workbench.console);
    await opened.browser?.close();
    if (opened.server) stopServer(opened.server);
  };
  try {
    // What is prepared may decide the options, as a path that exists only now does.
    const more = prepare?.(folder);
    opened.server = await startServer({ settings: TEST_SETTINGS, ...options, ...more });
    Object.assign(opened, await launchBrowser(opened.server));
    opened.workbench = new Workbench(opened.page, prefix);
    await opened.workbench.open(folderUrl(opened.server, folder));
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
