import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { after, test } from "node:test";
import { launchOf } from "../../src/server/launch";
import { Restarts, SHORT_TIME } from "../../src/server/restarts";

const folder = mkdtempSync(path.join(os.tmpdir(), "firstfault-launch-"));
after(() => rmSync(folder, { recursive: true, force: true }));

function write(file: string, text: string): string {
  const whole = path.join(folder, file);
  mkdirSync(path.dirname(whole), { recursive: true });
  writeFileSync(whole, text);
  return path.dirname(whole);
}

test("neither the user's variables nor their modules reach the server's process", () => {
  const tell = `import json, os, sys
print(json.dumps({"arguments": sys.argv[1:], "path": sys.path, "prefix": sys.pycache_prefix,
  "writes": not sys.dont_write_bytecode, "site": "site" in sys.modules, "cwd": os.getcwd(),
  "variables": sorted(name for name in os.environ if name.startswith("PYTHON")), "other": os.environ["SLURM_JOB_ID"]}))`;
  write("libs/firstfault/__init__.py", "");
  const libs = path.dirname(write("libs/firstfault/__main__.py", tell));
  const evil = write("evil/sitecustomize.py", "raise SystemExit('the user’s module was run')");
  write("evil/json.py", "raise SystemExit('the user’s module was run')");
  const environment = {
    ...process.env,
    SLURM_JOB_ID: "7",
    PYTHONPATH: evil,
    PYTHONHOME: "/nowhere",
    PYTHONINSPECT: "1",
    PYTHONDONTWRITEBYTECODE: "1",
  };
  const { command, args, options } = launchOf("python3", libs, path.join(folder, "cache"), environment);
  const told = JSON.parse(execFileSync(command, args, { ...options, encoding: "utf8", stdio: "pipe" }));
  assert.deepEqual(told.arguments, ["serve"]);
  assert.equal(told.path[0], libs);
  assert.ok(!told.path.some((each: string) => each === evil || each.includes("site-packages")), told.path);
  assert.equal(told.prefix, path.join(folder, "cache"));
  assert.equal(told.writes, true);
  assert.equal(told.site, false);
  assert.equal(told.cwd, libs);
  assert.equal(told.other, "7");
  assert.ok(!told.variables.includes("PYTHONHOME") && !told.variables.includes("PYTHONINSPECT"));
});

test("a server that dies is started again once; a second time within a short time is too much", () => {
  const restarts = new Restarts();
  assert.equal(restarts.stopped(1000), "restart");
  assert.equal(restarts.stopped(1000 + SHORT_TIME - 1), "give-up");
});

test("a crash long ago does not count, nor one before a restart by hand", () => {
  const restarts = new Restarts();
  restarts.stopped(1000);
  assert.equal(restarts.stopped(1000 + SHORT_TIME), "restart");
  restarts.forget();
  assert.equal(restarts.stopped(1001 + SHORT_TIME), "restart");
});
