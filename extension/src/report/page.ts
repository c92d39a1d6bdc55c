/** The shell of every page: the policy, the style and the script, which a page cannot do without or change. */

import { html, type Markup } from "./markup";
import { SCRIPT } from "./script";
import STYLE from "./style.css";

/** A whole page around a body. Nothing is loaded, and only what carries the nonce takes effect. */
export function pageOf(body: Markup, nonce: string, moreStyle = ""): string {
  const policy = `default-src 'none'; style-src 'nonce-${nonce}'; script-src 'nonce-${nonce}'`;
  const head = html`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Firstfault</title>
<style nonce="${nonce}">`.text;
  return `${head}${STYLE}${moreStyle}</style>\n</head>\n${body.text}\n<script nonce="${nonce}">${SCRIPT}</script>\n</html>\n`;
}
