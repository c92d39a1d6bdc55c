import assert from "node:assert/strict";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { after, test } from "node:test";
import { candidates, choose, type Exists, explainRefusals, type Facts, probeIn } from "../../src/server/interpreter";

const folder = mkdtempSync(path.join(os.tmpdir(), "firstfault-interpreter-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const nothing: Facts = {
  setting: "",
  workspaceFolders: ["/job"],
  trusted: true,
  env: {},
  platform: "linux",
  home: "/home/ann",
};
const everything: Exists = () => "file";
const only =
  (...files: string[]): Exists =>
  (file) =>
    files.includes(file) ? "file" : undefined;
const versions = (known: Record<string, string>) => async (file: string) =>
  known[file] ? { path: file, version: known[file] } : { reason: "it is broken" };

test("the candidates come in the order that the documentation names", () => {
  const facts: Facts = {
    ...nothing,
    setting: "/opt/py/bin/python",
    extensionChoice: "/ext/python",
    env: { VIRTUAL_ENV: "/venv", CONDA_PREFIX: "/conda", PATH: "/usr/bin:/bin" },
  };
  const exists = only("/job/.venv/bin/python", "/job/env/bin/python", "/usr/bin/python3", "/bin/python");
  assert.deepEqual(
    candidates(facts, exists).map((each) => each.path),
    [
      ...["/opt/py/bin/python", "/ext/python", "/job/.venv/bin/python", "/job/env/bin/python"],
      ...["/venv/bin/python", "/conda/bin/python", "/usr/bin/python3", "/bin/python"],
    ],
  );
});

test("on Windows the names and folders are those of Windows", () => {
  const facts: Facts = {
    ...nothing,
    workspaceFolders: ["C:\\job"],
    env: { CONDA_PREFIX: "C:\\conda", Path: "C:\\Python312;tools" },
    platform: "win32",
  };
  assert.deepEqual(
    candidates(facts, everything).map((each) => each.path),
    [
      ...["C:\\job\\.venv\\Scripts\\python.exe", "C:\\job\\venv\\Scripts\\python.exe"],
      ...["C:\\job\\env\\Scripts\\python.exe", "C:\\conda\\python.exe"],
      ...["C:\\Python312\\python.exe", "C:\\Python312\\py.exe"],
    ],
  );
});

test("the setting may name the workspace, the home folder, an environment or a command on PATH", () => {
  const paths = (setting: string, exists: Exists) =>
    candidates({ ...nothing, setting, env: { PATH: "/usr/bin" } }, exists)
      .filter((each) => each.origin.startsWith("the setting"))
      .map((each) => each.path);
  assert.deepEqual(paths("$" + "{workspaceFolder}/py/bin/python", everything), ["/job/py/bin/python"]);
  assert.deepEqual(paths("~/env/bin/python", everything), ["/home/ann/env/bin/python"]);
  assert.deepEqual(
    paths("/opt/env", (file) => (file === "/opt/env" ? "folder" : "file")),
    ["/opt/env/bin/python"],
  );
  assert.deepEqual(paths("python3.12", only("/usr/bin/python3.12")), ["/usr/bin/python3.12"]);
  assert.deepEqual(paths("python3.12", only()), ["python3.12"]);
});

test("a relative entry of PATH is not used: it would name a program of whatever folder is open", () => {
  const facts = { ...nothing, env: { PATH: ".:bin:/usr/bin" } };
  const found = candidates(facts, everything).filter((each) => each.origin === "PATH");
  assert.deepEqual(
    found.map((each) => each.path),
    ["/usr/bin/python3", "/usr/bin/python"],
  );
});

test("the first that is new enough is taken, and the refused ones keep their reasons", async () => {
  const facts = { ...nothing, setting: "/old/python", env: { VIRTUAL_ENV: "/gone", PATH: "/a:/b" } };
  const exists = only("/old/python", "/a/python3", "/b/python3");
  const probe = versions({ "/old/python": "3.9.18", "/b/python3": "3.10.0" });
  const { found, refused } = await choose(facts, exists, probe);
  assert.deepEqual(found, { path: "/b/python3", version: "3.10.0", origin: "PATH" });
  assert.deepEqual(
    refused.map((each) => each.reason),
    ["it is Python 3.9.18; 3.10 or newer is needed", "there is no such file", "it is broken"],
  );
  assert.match(
    explainRefusals(refused),
    /^\/old\/python \(the setting firstfault\.interpreter\): it is Python 3\.9\.18;/,
  );
});

test("Python 2.7 and 4.0 are not Python 3.10 or newer", async () => {
  for (const version of ["2.7.18", "3.9.99", "4.0.0"]) {
    const choice = await choose({ ...nothing, setting: "/p/python" }, everything, async (file) => ({
      path: file,
      version,
    }));
    assert.equal(choice.found, undefined, version);
  }
});

test("in a workspace that is not trusted no program of the workspace is started", async () => {
  const facts: Facts = {
    ...nothing,
    trusted: false,
    env: { VIRTUAL_ENV: "/job/.venv", PATH: "/job/.venv/bin:/usr/bin" },
  };
  const started: string[] = [];
  const { found, refused } = await choose(facts, everything, async (file) => {
    started.push(file);
    return { path: file, version: "3.12.1" };
  });
  assert.deepEqual(started, ["/usr/bin/python3"]);
  assert.equal(found?.path, "/usr/bin/python3");
  assert.ok(
    refused.length > 0 && refused.every((each) => each.reason === "it lies in a workspace that is not trusted"),
  );
  assert.ok(refused.every((each) => each.path.startsWith("/job/")));
});

test("a folder whose name only begins like the workspace's is not inside of it", async () => {
  const facts = { ...nothing, trusted: false, env: { VIRTUAL_ENV: "/job-env" } };
  const { found } = await choose(facts, only("/job-env/bin/python"), versions({ "/job-env/bin/python": "3.11.1" }));
  assert.equal(found?.path, "/job-env/bin/python");
});

test("nothing found says so", async () => {
  const { found, refused } = await choose(nothing, only(), versions({}));
  assert.equal(found, undefined);
  assert.match(explainRefusals(refused), /No Python was found/);
});

function script(name: string, text: string): string {
  const file = path.join(folder, name);
  mkdirSync(folder, { recursive: true });
  writeFileSync(file, `#!/bin/sh\n${text}\n`);
  chmodSync(file, 0o755);
  return file;
}

test("the probe reads the answer of a program that is started in an empty folder", async () => {
  const good = script("good", `test "$1 $2" = "-I -c" && pwd && echo ${folder}/real/python && echo 3.11.7`);
  assert.deepEqual(await probeIn(folder)(good), { path: `${folder}/real/python`, version: "3.11.7" });
  const here = script("here", "pwd; echo 3.11.7");
  assert.deepEqual(await probeIn("/")(here), { path: "/", version: "3.11.7" });
});

test("the probe says why a program is of no use", async () => {
  const reason = async (file: string, timeout?: number) => {
    const answer = await probeIn(folder, timeout)(file);
    return "reason" in answer ? answer.reason : answer;
  };
  const python2 = script("python2", "echo 'Unknown option: -I' >&2; exit 2");
  assert.equal(await reason(python2), "it does not start: Unknown option: -I");
  assert.equal(await reason(script("mute", "exit 0")), "it does not answer as Python 3 does");
  assert.equal(await reason(script("slow", "exec sleep 20"), 200), "it did not answer within 0.2 seconds");
  const plain = path.join(folder, "plain");
  writeFileSync(plain, "no program", { mode: 0o644 });
  assert.equal(await reason(plain), "it is not executable");
});
