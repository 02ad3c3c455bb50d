// Save the current view: as a page that needs no server, as an SVG, or as a PNG.
//
// The page is a copy of what is on the screen, with the style sheet inside and without scripts. The SVG holds the same copy
// as a foreign object, so every room can be saved without code of its own; browsers show it, drawing programs may not.

import { isDark } from "./colour.js";
import { make } from "./dom.js";

const style = () => fetch("/lab.css").then((response) => response.text());

function frozen(main) {
  const copy = main.cloneNode(true);
  const fields = main.querySelectorAll("textarea, select, input");
  copy.querySelectorAll("textarea, select, input").forEach((field, place) => {
    const source = fields[place];
    if (source.type === "checkbox") field.toggleAttribute("checked", source.checked);
    else if (source.type === "range") field.setAttribute("value", source.value);
    else if (source.tagName === "TEXTAREA") field.replaceWith(make("p", { class: `typed ${source.className}` }, source.value));
    else field.replaceWith(make("span", { class: "picked" }, source.tagName === "SELECT" ? source.selectedOptions[0]?.text ?? "" : source.value));
  });
  for (const node of copy.querySelectorAll(".unsaved, .examples, script")) node.remove();
  for (const node of copy.querySelectorAll("button, input, [tabindex]")) node.setAttribute("tabindex", "-1"); // nothing happens there
  return copy;
}

function download(name, parts, type) {
  const address = URL.createObjectURL(new Blob(parts, { type }));
  const link = make("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

const theme = () => (isDark() ? "dark" : "light");

// A string, not a document: one that is made here would inherit our security policy, which forbids its style element.
export async function savePage(main, name, title) {
  const policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'";
  const head = [
    '<meta charset="utf-8">', '<meta name="viewport" content="width=device-width, initial-scale=1">',
    `<meta http-equiv="Content-Security-Policy" content="${policy}">`, make("title", {}, title).outerHTML, `<style>${await style()}</style>`,
  ].join("\n");
  const page = `<!DOCTYPE html>\n<html lang="en" data-theme="${theme()}">\n<head>\n${head}\n</head>\n<body>\n${frozen(main).outerHTML}\n</body>\n</html>\n`;
  download(`${name}.html`, [page], "text/html");
}

async function asSvg(main) {
  const { width } = main.getBoundingClientRect();
  const height = main.scrollHeight;
  const copy = frozen(main);
  const sheet = make("style", {}, await style());
  const body = make("div", { class: "sheet", "data-theme": theme() }, copy);
  const inner = new XMLSerializer().serializeToString(body);
  const css = new XMLSerializer().serializeToString(sheet);
  return { width, height, text:
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">` +
    `<foreignObject width="100%" height="100%">${css.replace("<style", '<style type="text/css"')}${inner}</foreignObject></svg>` };
}

export async function saveSvg(main, name) {
  const { text } = await asSvg(main);
  download(`${name}.svg`, [text], "image/svg+xml");
}

export async function savePng(main, name) {
  const { text, width, height } = await asSvg(main);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const ratio = Math.min(2, Math.sqrt(3e7 / (width * height)));
  const canvas = make("canvas", { width: Math.round(width * ratio), height: Math.round(height * ratio) });
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.drawImage(image, 0, 0);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  download(`${name}.png`, [blob], "image/png");
}

// The menu in the header.
export function saveMenu(holder, current) {
  const run = (act) => async () => {
    details.open = false;
    const { main, name, title, fail } = current();
    await act(main, name, title).catch((error) => fail(`This view could not be saved: ${error.message}`));
  };
  const item = (text, act) => make("button", { type: "button", on: { click: run(act) } }, text);
  const details = make("details", {}, make("summary", { class: "quiet" }, "Save"),
    make("div", { class: "sheet-of-choices" }, item("Picture (.png)", savePng), item("Picture (.svg)", saveSvg), item("Page (.html)", savePage)));
  details.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      details.open = false;
      details.firstChild.focus();
    }
  });
  addEventListener("click", (event) => details.contains(event.target) || (details.open = false));
  holder.append(details);
}
