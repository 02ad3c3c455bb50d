// As much Markdown as our derivations use: paragraphs, lists, tables, code, bold, links. Text stays text.

import { make } from "./dom.js";

const INLINE = /\*\*(.+?)\*\*|`([^`]+)`|\[([^\]]+)\]\(([^)]+)\)|\\\n/gs;

// follow(target): what a link does, or nothing
function inline(text, follow) {
  const parts = [];
  let done = 0;
  for (const found of text.matchAll(INLINE)) {
    parts.push(text.slice(done, found.index));
    const [all, bold, code, label, target] = found;
    const act = target && follow(target);
    parts.push(bold ? make("b", {}, inline(bold, follow)) : code ? make("code", {}, code)
      : act ? make("button", { type: "button", class: "link", on: { click: act } }, label) : label ? make("code", {}, label) : make("br"));
    done = found.index + all.length;
  }
  return [...parts, text.slice(done)];
}

const items = (block, mark) => block.split(mark).slice(1);

// A list of elements
export function markdown(text, follow = () => null) {
  const blocks = text.match(/```\w*\n[\s\S]*?```|(?:(?!\n\n|```)[\s\S])+/g) ?? [];
  return blocks.map((block) => block.replace(/^\n+|\s+$/g, "")).filter(Boolean).map((block) => {
    const lines = block.split("\n");
    if (block.startsWith("```")) return make("pre", { tabindex: 0 }, make("code", {}, lines.slice(1, -1).join("\n")));
    if (lines.every((line) => /^ {4}|^$/.test(line))) return make("pre", { class: "formulas", tabindex: 0 }, make("code", {}, lines.map((line) => line.slice(4)).join("\n")));
    const list = block.startsWith("- ") ? ["ul", /^- /m] : /^\d+\. /.test(block) ? ["ol", /^\d+\. /m] : null;
    if (list) return make(list[0], {}, items(block, list[1]).map((item) => make("li", {}, inline(item, follow))));
    if (block.startsWith("|")) return make("table", {}, make("tbody", {}, lines.filter((line) => !/^\|[-|]+$/.test(line)).map((line) => make("tr", {}, line.slice(1, -1).split("|").map((cell) => make("td", {}, inline(cell.trim(), follow)))))));
    return make("p", {}, inline(block, follow));
  });
}
