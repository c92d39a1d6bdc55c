// Drives the workbench in Chromium with the words of a user: open a file, run a command, select, look.
import { copyFileSync, mkdirSync } from "node:fs";
import path from "node:path";
import { chromium } from "playwright-core";
import { HERE, until } from "./server.mjs";

export const SHOTS = path.join(HERE, "shots");

const FLAGS = [
  ...["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"],
  ...["--disable-background-networking", "--disable-component-update", "--disable-sync"],
];

// What the tests need beyond a user's settings. The DOM renderer lets them read the terminal's rows from the page.
export const TEST_SETTINGS = {
  "workbench.quickOpen.closeOnFocusLost": false,
  "workbench.reduceMotion": "on",
  "editor.accessibilitySupport": "off",
  "editor.cursorBlinking": "solid",
  // Below the line, so that the code before it is seen on the shots.
  "editor.hover.above": false,
  "terminal.integrated.gpuAcceleration": "off",
};

/** A browser that keeps what it writes in the server's home. */
export async function launchBrowser({ env }) {
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
  const browser = await chromium.launch({ executablePath, args: FLAGS, env });
  // A workbench in a browser reaches the clipboard through the page.
  const context = await browser.newContext({
    viewport: { width: 1280, height: 800 },
    permissions: ["clipboard-read", "clipboard-write"],
  });
  context.setDefaultTimeout(60_000);
  return { browser, page: await context.newPage() };
}

/** Monaco and xterm render blanks as no-break spaces. */
const plain = (text) => text.replaceAll("\u00a0", " ");
const exactly = (text) => new RegExp(`^${text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`);

export class Workbench {
  constructor(page, prefix) {
    this.page = page;
    this.prefix = prefix;
    this.shots = 0;
    this.console = [];
    page.on("console", (message) => this.console.push(`${message.type()}: ${message.text()}`));
  }

  async open(url) {
    await this.page.goto(url, { waitUntil: "domcontentloaded" });
    await this.page.locator(".monaco-workbench .part.editor").waitFor();
    // The files are listed once the connection to the server stands.
    await this.page.locator(".explorer-folders-view .monaco-list-row").first().waitFor();
  }

  async shot(name) {
    mkdirSync(SHOTS, { recursive: true });
    this.lastShot = path.join(SHOTS, `${this.prefix}-${String(++this.shots).padStart(2, "0")}-${name}.png`);
    await this.page.screenshot({ path: this.lastShot, animations: "disabled" });
  }

  /** A shot without the side bar, as the README shows it. No two machines draw the same pixels: docs/ changes on request only. */
  async picture(name, prepare) {
    await this.page.keyboard.press("Control+B");
    await this.page.locator(".part.sidebar").waitFor({ state: "hidden" });
    await prepare();
    // Scroll bars fade in under the mouse.
    await this.page.mouse.move(640, 795);
    await this.page.waitForTimeout(1000);
    await this.shot(name);
    if (process.env.PICTURES) copyFileSync(this.lastShot, path.join(process.env.PICTURES, `${name}.png`));
    await this.page.keyboard.press("Control+B");
    await this.page.locator(".part.sidebar").waitFor();
  }

  /** A command by its whole title in the palette, for example 'Firstfault: Diagnose Selection'. */
  command(title) {
    return this.pick("F1", `>${title}`, title);
  }

  doubleClickFile(name) {
    return this.explorerRow(name).dblclick();
  }

  /** Opens a file by its name, which the project must hold once. */
  async openFile(name) {
    const tab = this.page.locator(`.editor-group-container.active .tab.active[data-resource-name="${name}"]`);
    await this.retry(async () => {
      await this.pick("Control+P", name, name);
      await tab.waitFor({ timeout: 10_000 });
    });
    await this.activeEditor().locator(".view-line").first().waitFor();
  }

  /** Types into the quick input and clicks the row with exactly this label: the row that has the focus may be a similar one. */
  async pick(key, text, label) {
    const widget = this.page.locator(".quick-input-widget:visible");
    const rows = widget.locator(".monaco-list-row");
    const row = rows.filter({ has: this.page.locator(".label-name", { hasText: exactly(label) }) }).first();
    await this.retry(async () => {
      await this.page.keyboard.press(key);
      await widget.locator("input.input:visible").fill(text, { timeout: 10_000 });
      await row.waitFor({ timeout: 10_000 });
      // Results come in by and by, and the rows move under the mouse.
      await settled(() => rows.allTextContents());
      await row.click({ timeout: 10_000 });
      await widget.waitFor({ state: "hidden", timeout: 10_000 });
    });
  }

  /** Quick inputs and menus close when something else takes the focus, so what is done with them is tried again. */
  async retry(run) {
    for (let left = 3; ; left--) {
      try {
        return await run();
      } catch (error) {
        if (left === 0) throw error;
        await this.page.keyboard.press("Escape");
      }
    }
  }

  /** Chooses from a context menu. By keyboard: a menu that has just opened does not heed clicks. */
  async chooseFromMenu(target, label) {
    const item = this.page.locator(".monaco-menu:visible .action-item", { hasText: label });
    await this.retry(async () => {
      await target.click({ button: "right" });
      await item.hover({ timeout: 10_000 });
      await this.page.keyboard.press("Enter");
      await item.waitFor({ state: "hidden", timeout: 10_000 });
    });
  }

  explorerRow(name) {
    return this.page.locator(".explorer-folders-view .monaco-list-row", { hasText: name }).first();
  }

  activeEditor() {
    return this.page.locator(".editor-group-container.active .monaco-editor").first();
  }

  editorOf(file) {
    return this.page.locator(`.editor-instance .monaco-editor[data-uri$="/${file}"]`).first();
  }

  /** The visible lines of the file's editor as [number, text]; the page does not hold them in order. */
  async lines(file) {
    const editor = this.editorOf(file);
    const numbers = await tops(editor.locator(".margin-view-overlays > div"), ".line-numbers");
    const texts = await tops(editor.locator(".view-lines > .view-line"), undefined);
    return texts.map(([top, text]) => [Number(numbers.find(([other]) => other === top)?.[1]), plain(text)]);
  }

  async text(file) {
    return (await this.lines(file)).map(([, text]) => text).join("\n");
  }

  /** The numbers of the file's visible lines that carry a squiggle. */
  async squiggledLines(file) {
    const editor = this.editorOf(file);
    const marks = await editor
      .locator(".view-overlays > div", { has: this.page.locator('.cdr[class*="squiggly"]') })
      .evaluateAll((all) => all.map((one) => parseFloat(one.style.top)));
    const numbers = await tops(editor.locator(".margin-view-overlays > div"), ".line-numbers");
    return numbers.filter(([top]) => marks.includes(top)).map(([, number]) => Number(number));
  }

  /** Puts the caret at line:column, both from 1. */
  async goTo(line, column = 1) {
    const widget = this.page.locator(".quick-input-widget:visible");
    await this.page.keyboard.press("Control+G");
    await widget.locator("input.input:visible").fill(`:${line}:${column}`);
    await this.page.keyboard.press("Enter");
    await widget.waitFor({ state: "hidden" });
  }

  async selectLines(first, last) {
    await this.goTo(first);
    for (let line = first; line < last; line++) await this.page.keyboard.press("Shift+ArrowDown");
    await this.page.keyboard.press("Shift+End");
  }

  /** What the status bar says, for example 'Ln 9, Col 5'. */
  async position() {
    const text = await this.page.locator("#status\\.editor\\.selection").textContent();
    return plain(text);
  }

  async newTerminal() {
    await this.command("Terminal: Create New Terminal");
    await this.raisePanel();
    await until("a prompt", async () => /\$\s*$/.test((await this.terminalText()).trimEnd()));
  }

  /** Makes the lower panel half as high again, so that a whole traceback is seen at once. */
  async raisePanel() {
    const { x, y, width } = await this.page.locator(".part.panel").boundingBox();
    await this.page.mouse.move(x + width / 2, y - 2);
    await this.page.mouse.down();
    await this.page.mouse.move(x + width / 2, y - 140, { steps: 5 });
    await this.page.mouse.up();
  }

  async typeInTerminal(line) {
    await this.page.locator(".terminal-wrapper.active .xterm-helper-textarea").focus();
    await this.page.keyboard.type(line);
    await this.page.keyboard.press("Enter");
  }

  async terminalText() {
    return plain((await this.terminalRows().allTextContents()).join("\n"));
  }

  terminalRows() {
    return this.page.locator(".terminal-wrapper.active .xterm-rows > div");
  }

  /** Drags from the row that holds `from` to the end of the row that holds `to`. An overlay covers the rows, so the mouse is moved by hand. */
  async dragInTerminal(from, to) {
    const start = await this.terminalRows().filter({ hasText: from }).last().boundingBox();
    const end = await this.terminalRows().filter({ hasText: to }).last().boundingBox();
    await this.page.mouse.move(start.x + 1, start.y + start.height / 2);
    await this.page.mouse.down();
    await this.page.mouse.move(end.x + 400, end.y + end.height / 2, { steps: 8 });
    await this.page.mouse.move(end.x + 700, end.y + end.height / 2, { steps: 4 });
    await this.page.mouse.up();
    return end;
  }

  /** The document inside the report panel. */
  panel() {
    return this.page.frameLocator("iframe.webview.ready:visible").frameLocator("#active-frame").locator("body");
  }

  notification(text) {
    return this.page
      .locator(".notifications-toasts .notification-list-item, .notifications-center .notification-list-item", {
        hasText: text,
      })
      .first();
  }
}

/** Polls until the answer is the same three times. */
async function settled(look) {
  const seen = [];
  await until("a list that stays", async () => {
    seen.push(JSON.stringify(await look()));
    return seen.length > 2 && new Set(seen.slice(-3)).size === 1;
  });
}

const tops = (rows, inner) =>
  rows.evaluateAll(
    (all, selector) =>
      all
        .map((one) => [parseFloat(one.style.top), (selector ? one.querySelector(selector) : one)?.textContent])
        .filter(([, text]) => text !== undefined)
        .sort((a, b) => a[0] - b[0]),
    inner,
  );
