// What every run starts from: a copy of examples/, which may be changed.
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { REPOSITORY } from "./server.mjs";

/** The folder of the copy, which goes away with this process. */
export function copyExamples() {
  const parent = mkdtempSync(path.join(os.tmpdir(), "firstfault-project-"));
  const folder = path.join(parent, "examples");
  cpSync(path.join(REPOSITORY, "examples"), folder, {
    recursive: true,
    filter: (file) => !file.includes("__pycache__"),
  });
  process.on("exit", () => rmSync(parent, { recursive: true, force: true }));
  moveLogsAway(folder);
  return folder;
}

/** The logs come from a machine where the script lay elsewhere. Here no file may lie at that place. */
function moveLogsAway(folder) {
  for (const name of readdirSync(folder, { recursive: true }).filter((each) => each.endsWith(".log"))) {
    const file = path.join(folder, name);
    writeFileSync(file, readFileSync(file, "utf8").replaceAll(' "/home/', ' "/cluster/home/'));
  }
}

/** The number of the first line of the project's file that holds the text, from 1. */
export function lineOf(folder, file, text) {
  const lines = readFileSync(path.join(folder, file), "utf8").split("\n");
  return lines.findIndex((line) => line.includes(text)) + 1;
}
