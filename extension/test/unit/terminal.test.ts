import assert from "node:assert/strict";
import { test } from "node:test";
import { OutputTail } from "../../src/terminal/outputTail";
import { plainText } from "../../src/terminal/plainText";

test("the shell's marks, titles, links and colours are left out", () => {
  const raw =
    "\x1b]633;C\x07\x1b[1;31mValueError\x1b[0m: loss is nan\r\n" +
    "\x1b]0;python train.py\x1b\\see \x1b]8;;file:///a.py\x07a.py\x1b]8;;\x07\r\n\x1b]633;D;1\x07\x1b[?2004h\x1b(B";
  assert.equal(plainText(raw), "ValueError: loss is nan\nsee a.py\n");
});

test("an unended mark takes no more than its own line", () => {
  assert.equal(
    plainText("\x1b]633;E;python\nTraceback (most recent call last):\n"),
    "\nTraceback (most recent call last):\n",
  );
});

test("progress bars keep their carriage returns, line ends become newlines", () => {
  assert.equal(plainText("1%\r2%\r3%\r\ndone\r\r\n"), "1%\r2%\r3%\ndone\n");
});

test("brackets and backslashes of the text itself stay", () => {
  const text = "x[0] = C:\\new [rank3]: (a;b) ]633;C";
  assert.equal(plainText(text), text);
});

test("short output is kept whole", () => {
  const tail = new OutputTail(100);
  tail.push("one\n");
  tail.push("two\n");
  assert.equal(tail.text(), "one\ntwo\n");
  assert.equal(tail.isCut, false);
});

test("of long output the end is kept, from a whole line on", () => {
  const tail = new OutputTail(50);
  for (let number = 0; number < 1000; number++) tail.push(`line ${number}\n`);
  const text = tail.text();
  assert.equal(tail.isCut, true);
  assert.match(text, /^line \d+\n/);
  assert.ok(text.endsWith("line 999\n"));
  assert.ok(text.length >= 30 && text.length <= 60, `${text.length}`);
});

test("one piece above the limit is cut, and what comes later still fits", () => {
  const tail = new OutputTail(20);
  tail.push(`${"x".repeat(500)}\nthe end of it\n`);
  assert.equal(tail.text(), "the end of it\n");
  tail.push("more\n");
  assert.ok(tail.text().endsWith("more\n"));
});

test("reading in between changes nothing", () => {
  const tail = new OutputTail(100);
  tail.push("a\n");
  assert.equal(tail.text(), "a\n");
  tail.push("b\n");
  assert.equal(tail.text(), "a\nb\n");
  assert.equal(tail.text(), "a\nb\n");
});
