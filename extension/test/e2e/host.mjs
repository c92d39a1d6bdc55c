// Runs host/*.test.cjs (mocha) inside the workbench's own extension host, where `require('vscode')` is the real one, against the
// installed .vsix. Exits with 0 when every test passed.
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { copyExamples } from "./examples.mjs";
import { folderUrl, HERE, startServer, stopServer } from "./server.mjs";
import { launchBrowser, TEST_SETTINGS, Workbench } from "./workbench.mjs";

const LIMIT = 240_000;
// What the workbench itself says while it starts.
const NOISE =
  /^(Ignoring fetching|Creating a socket|Resolv(ing|ed) connection token|\[(AccountPolicyGate|AgentHost|Service Worker|reconnection-grace-time|ChatModel))/;

process.exitCode = await run();

async function run() {
  const folder = copyExamples();
  // A built workbench heeds the test paths of its address only with this option.
  const server = await startServer({
    settings: TEST_SETTINGS,
    options: ["--vscode-option", "enable-smoke-test-driver"],
  });
  const { browser, page } = await launchBrowser(server);
  try {
    return await runInHost(new Workbench(page, "host"), server, folder);
  } finally {
    await browser.close();
    stopServer(server);
  }
}

async function runInHost(workbench, server, folder) {
  const { page } = workbench;
  // The workbench calls these two when it runs tests.
  const ended = new Promise((resolve) => page.exposeFunction("codeAutomationExit", resolve));
  await page.exposeFunction("codeAutomationLog", (_, words) => {
    if (!NOISE.test(String(words[0]))) console.log(...words);
  });
  await page.goto(`${folderUrl(server, folder)}&payload=${encodeURIComponent(JSON.stringify(testPayload(server)))}`);
  const code = await Promise.race([ended, sleep(LIMIT, "late", { ref: false })]);
  if (code !== "late") return code;
  await workbench.shot("late");
  console.error(`No result within ${LIMIT} ms.\n${workbench.console.join("\n")}`);
  return 1;
}

/** The "extension under development" is a folder with the tests alone: Firstfault itself is the installed package. */
function testPayload(server) {
  const remote = (file) => `vscode-remote://127.0.0.1:${server.port}${file}`;
  return [
    ["extensionDevelopmentPath", remote(path.join(HERE, "host"))],
    ["extensionTestsPath", remote(path.join(HERE, "host/index.cjs"))],
    ["skipWelcome", "true"],
  ];
}
