// Opens the workbench for a person: the extension installed, a copy of examples/ open, on 127.0.0.1 until Ctrl-C.
import { existsSync } from "node:fs";
import { copyExamples } from "./examples.mjs";
import { folderUrl, startServer, VSIX } from "./server.mjs";

if (!existsSync(VSIX)) {
  console.error(`There is no ${VSIX}. 'make package' in the repository's folder makes it.`);
  process.exit(2);
}

const folder = copyExamples();
const server = await startServer({ port: process.env.PORT ? Number(process.env.PORT) : undefined });
console.log(`
Open ${folderUrl(server, folder)}

  1. Open train.py, put the caret on a squiggle and press Ctrl+. to see its fixes.
  2. Open run.log and press F1, then "Firstfault: Diagnose File".
  3. Run "python3 crash.py" in the terminal, then F1, "Firstfault: Diagnose Last Command".

Your changes go to a copy of examples/ that is removed at the end. Ctrl-C ends it.`);
// The server keeps this process alive, and ends with it.
