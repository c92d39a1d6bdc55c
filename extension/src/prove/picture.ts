/** The server's picture as a part of the page: its shapes and words alone, drawn in the editor's colours. */

import { Markup } from "../report/markup";

const STYLE = /<style>[^<]*<\/style>/g;
const TAG = /<[^>]*>/g;
const ALLOWED =
  /^<\/?(?:svg|title|text|rect|line)(?: (?:xmlns|viewBox|role|class|x|y|x1|x2|y1|y2|width|height|text-anchor)="[\w .:/#-]*")* *\/?>$/;

/** Undefined where it holds anything but what a picture of bars needs. */
export function pictureOf(svg: string): Markup | undefined {
  const bare = svg.replace(STYLE, "").trim();
  const tags = bare.match(TAG) ?? [];
  const words = bare.replace(TAG, "");
  const isOurs = bare.startsWith("<svg ") && bare.endsWith("</svg>") && tags.every((tag) => ALLOWED.test(tag));
  return isOurs && !/[<>]/.test(words) ? new Markup(bare) : undefined;
}
