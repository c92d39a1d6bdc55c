// No Python that is new enough: the user is told which were tried, and a choice takes effect without a reload.

import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before } from "node:test";
import { openProject, stepsOf } from "../project.mjs";
import { languageServers, until } from "../server.mjs";

let project, workbench;
const step = stepsOf(() => workbench);
const python = execFileSync("python3", ["-c", "import sys; print(sys.executable)"], { encoding: "utf8" }).trim();
const TOO_OLD = `#!${python}
import sys
sys.version_info = (3, 8, 20, "final", 0)
exec(sys.argv[-1])
`;

before(async () => {
  project = await openProject("interpreter", { prepare });
  ({ workbench } = project);
});
after(() => project?.close());

function prepare(folder) {
  const old = path.join(folder, "../python3.8");
  writeFileSync(old, TOO_OLD);
  chmodSync(old, 0o755);
  return {
    env: { PATH: withoutPython(path.join(folder, "../tools")) },
    machineSettings: { "firstfault.interpreter": old },
  };
}

/** A folder with every tool of this machine but Python. */
function withoutPython(folder) {
  mkdirSync(folder);
  const others = readdirSync("/usr/bin").filter((name) => !/^(python|py\b|pypy)/.test(name));
  for (const name of others) symlinkSync(`/usr/bin/${name}`, path.join(folder, name));
  return folder;
}

step("where every interpreter is too old, the user is told in words, with a button to choose another", async () => {
  await workbench.openFile("train.py");
  const message = workbench.notification("needs Python 3.10 or newer and found none");
  await message.filter({ hasText: "it is Python 3.8.20" }).waitFor();
  await message.locator(".monaco-button", { hasText: "Choose Interpreter" }).waitFor();
  await workbench.shot("message");
});

step("the setting takes effect without a reload", async () => {
  const file = path.join(project.server.data, "Machine/settings.json");
  writeFileSync(file, JSON.stringify({ "firstfault.interpreter": python }));
  await until("the server", () => languageServers(project.server).length > 0);
  await until("squiggles", async () => (await workbench.squiggledLines("train.py")).length > 0);
  await workbench.shot("chosen");
});
