import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { after, test } from "node:test";
import { editorLine, editorLineOfFile, LineFinder } from "../../src/report/lines";
import { bestMatch, globOf, holdsFrame, isShare, labelOf, rankRanges } from "../../src/report/paths";

const folder = mkdtempSync(path.join(os.tmpdir(), "firstfault-places-"));
after(() => rmSync(folder, { recursive: true, force: true }));

test("without lone carriage returns the editor's lines are the report's, from 0", () => {
  assert.equal(editorLine("a\nb\nc", 1), 0);
  assert.equal(editorLine("a\nb\nc", 3), 2);
  assert.equal(editorLine("a\r\nb\r\nc", 3), 2);
});

test("every lone carriage return is one more line of the editor", () => {
  assert.equal(editorLine("1%\r2%\r3%\nTraceback\n", 2), 3);
  assert.equal(editorLine("1%\r2%\r3%\r\nTraceback\n", 2), 3);
  assert.equal(editorLine("\r\r\n\nx", 3), 3);
});

test("a text within a progress bar's line is found in its frame", () => {
  const text = "start\nepoch 1\repoch 2 loss nan\repoch 3\nend\n";
  assert.equal(editorLine(text, 2), 1);
  assert.equal(editorLine(text, 2, "epoch 2 loss nan"), 2);
  assert.equal(editorLine(text, 2, "not there"), 1);
  assert.equal(editorLine(text, 3, "end"), 4);
});

test("a line beyond the end is the last one", () => {
  assert.equal(editorLine("a\nb", 99), 1);
});

test("a text in pieces gives what the whole gives, wherever it is cut", () => {
  const text = "a\r\nb\rc\r\n\rd loss\re\n";
  for (let cut = 0; cut <= text.length; cut++) {
    const finder = new LineFinder(3, "d loss");
    finder.push(text.slice(0, cut));
    finder.push(text.slice(cut));
    assert.equal(finder.found, editorLine(text, 3, "d loss"), `cut at ${cut}`);
    assert.equal(finder.isDone, true);
  }
});

test("files are read in their encoding, and no further than needed", async () => {
  const file = path.join(folder, "run.log");
  const text = "größe 1%\rgröße 2%\nTraceback\nKeyError: 'ä'\n";
  writeFileSync(file, text);
  assert.equal(await editorLineOfFile(file, 3, "KeyError: 'ä'"), 3);
  writeFileSync(file, Buffer.from(`\ufeff${text}`, "utf16le"));
  assert.equal(await editorLineOfFile(file, 3, "KeyError: 'ä'"), 3);
  writeFileSync(file, `${"1%\r".repeat(200_000)}\nTraceback\n${"x\n".repeat(10)}`);
  assert.equal(await editorLineOfFile(file, 2), 200_000);
});

test("the file that shares the longest end of the path is the one", () => {
  const files = ["/w/train.py", "/w/lab/train.py", "/w/lab/data.py"];
  assert.equal(bestMatch("/home/ann/lab/train.py", files), "/w/lab/train.py");
  assert.equal(bestMatch("C:\\ann\\lab\\train.py", files), "/w/lab/train.py");
  assert.equal(bestMatch("./train.py", ["/w/train.py"]), "/w/train.py");
  assert.equal(bestMatch("/home/ann/other.py", files), undefined);
});

test("where two files fit as well, neither is named", () => {
  assert.equal(bestMatch("/home/ann/train.py", ["/w/a/train.py", "/w/b/train.py"]), undefined);
  assert.equal(bestMatch("/home/a/train.py", ["/w/a/train.py", "/w/b/train.py"]), "/w/a/train.py");
  assert.equal(bestMatch("/x/a/train.py", ["/v/train.py", "/w/a/train.py", "/u/train.py"]), "/w/a/train.py");
});

test("a name that every package has must share its folder, too", () => {
  assert.equal(bestMatch("/home/ann/lab/__init__.py", ["/w/other/__init__.py"]), undefined);
  assert.equal(bestMatch("/home/ann/lab/__init__.py", ["/w/lab/__init__.py"]), "/w/lab/__init__.py");
});

test("a part of a name is not a part of a path", () => {
  assert.equal(bestMatch("/home/ann/retrain.py", ["/w/train.py"]), undefined);
});

test("a script of the same name is another one where it has no such line or function", () => {
  const source = "import torch\n\ndef load(path):\n    return torch.load(path)\n";
  assert.ok(holdsFrame(source, { line: 4, function: "load" }));
  assert.ok(holdsFrame(source, { line: 4, function: "Data.load" }));
  assert.ok(holdsFrame(source, { line: 1, function: "<module>" }));
  assert.ok(!holdsFrame(source, { line: 2, function: "<module>" }));
  assert.ok(!holdsFrame(source, { line: 90, function: "load" }));
  assert.ok(!holdsFrame(source, { line: 4, function: "loader" }));
});

test("a glob holds no special character of the name", () => {
  assert.equal(globOf("/a/b/run[1]{x}*.log"), "**/run?1??x??.log");
});

test("a network share is recognised before it is asked for", () => {
  assert.ok(isShare("\\\\host\\share\\train.py"));
  assert.ok(isShare("//host/share/train.py"));
  assert.ok(!isShare("/home/ann/train.py"));
});

test("labels are short and tell files of one job apart", () => {
  assert.equal(labelOf("/job/logs/3/stderr.log", ["/job/logs"]), "3/stderr.log");
  assert.equal(labelOf("/job/logs", ["/job/logs"]), "/job/logs");
  assert.equal(labelOf("/joblogs/a/b/stderr.log", ["/job"]), "…/a/b/stderr.log");
  assert.equal(labelOf("train.py", []), "train.py");
});

test("ranks are written as ranges", () => {
  assert.equal(rankRanges([5, 0, 1, 2, 2]), "0–2, 5");
  assert.equal(rankRanges([3, 4]), "3, 4");
  assert.equal(rankRanges([]), "");
});
