// Elements of the page. Text becomes text nodes, never markup; styles go through the CSSOM, which the security policy allows.

const SVG = "http://www.w3.org/2000/svg";

// make("p", { class: "note", on: { click }, style: { width: "3px" } }, "text", node, …)
export function make(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

let count = 0;
export const unique = (name) => `${name}-${++count}`;

// One of several elements can be reached with Tab; arrow keys, Home and End move between them.
export function roving(container, selector, columns = () => 1e9) {
  const items = () => [...container.querySelectorAll(selector)];
  const refresh = (current) => {
    const all = items();
    const chosen = all.includes(current) ? current : all.find((one) => one.tabIndex === 0) || all[0];
    for (const one of all) one.tabIndex = one === chosen ? 0 : -1;
  };
  container.addEventListener("focusin", (event) => {
    const item = event.target.closest(selector);
    if (item) refresh(item);
  });
  container.addEventListener("keydown", (event) => {
    const all = items();
    const place = all.indexOf(event.target.closest(selector));
    if (place < 0) return;
    const wide = columns();
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -wide, ArrowDown: wide }[event.key];
    const next = event.key === "Home" ? 0 : event.key === "End" ? all.length - 1 : step === undefined ? -1 : place + step;
    if (next < 0 || next >= all.length) return;
    event.preventDefault();
    all[next].focus();
  });
  return { refresh };
}

export const percent = (share) =>
  `${share === 0 || share >= 0.0995 ? Math.round(100 * share) : share >= 0.001 ? (100 * share).toFixed(1) : "<\u00a00.1"}\u00a0%`; // never split at the end of a line

// A number with a true minus sign, and as many digits as a column of numbers needs.
export function digits(value, places = 2) {
  const size = Math.abs(value);
  if (places > 2 && size > 0 && size < 0.5 * 10 ** -places) return value.toExponential(1).replaceAll("-", "−");
  const text = size >= 1000 ? size.toPrecision(4) : size >= 100 ? size.toFixed(Math.min(1, places)) : size.toFixed(places);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

// Numbers that the server has packed in base 64, little-endian.
export function unpack(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Kind(bytes.buffer);
}
