// The shell of the page: navigation, links, theme, and the place where a room is shown.

import { make } from "./parts/dom.js";
import { linkTo, readLink } from "./parts/link.js";
import { saveMenu } from "./parts/save.js";
import { View } from "./parts/view.js";
import { rooms } from "./rooms.js";

const $ = (id) => document.getElementById(id);
const main = $("main"), nav = $("rooms"), status = $("busy");
let view = null, shown = null;
let turn = 0;

// --- what a room needs from the page

let waiting = 0, timer = 0;
const shell = {
  busy() {
    waiting += 1;
    timer ||= setTimeout(() => { status.textContent = "computing …"; }, 400);
    return () => {
      waiting -= 1;
      if (waiting) return;
      clearTimeout(timer);
      timer = 0;
      status.textContent = "";
    };
  },
  announce(text) {
    $("announcer").textContent = text;
  },
  // Other rooms open with the sentence of this one.
  linked(name, params) {
    for (const link of nav.querySelectorAll("a")) {
      link.href = link.dataset.room === name ? linkTo(name, params) : linkTo(link.dataset.room, { text: params.text });
    }
  },
};

// --- rooms

nav.append(...rooms.map((room) => make("a", { href: linkTo(room.name), "data-room": room.name, title: room.title }, room.tab)));

async function open() {
  const { name, params } = readLink();
  const room = rooms.find((one) => one.name === name) ?? rooms[0];
  for (const link of nav.querySelectorAll("a")) {
    if (link.dataset.room === room.name) {
      link.setAttribute("aria-current", "page");
      nav.scrollLeft = link.offsetLeft - nav.offsetLeft - 40; // on a narrow page, not all fit
    }
    else link.removeAttribute("aria-current");
  }
  if (shown?.room === room) {
    shown.show(params);
    return;
  }
  const own = ++turn;
  view?.close();
  view = new View(room, shell);
  document.title = `${room.title} · Mini-BERT lab`;
  shell.linked(room.name, params);
  const heading = make("h1", {}, room.title);
  main.replaceChildren(heading, make("p", { class: "lead" }, room.lead), view.root);
  if (name && name !== room.name) view.error.textContent = "There is no such room yet; this is the first one.";
  try {
    const module = await import(`./rooms/${room.name}.js`);
    if (own !== turn) return;
    shown = { room, show: module.default(view, params).show };
    if (document.activeElement && document.activeElement !== document.body) main.focus({ preventScroll: true });
  } catch (error) {
    view.root.append(make("p", { class: "error", role: "alert" }, "This room could not be opened. Reload the page."));
    throw error;
  }
}

addEventListener("hashchange", open);

// --- theme

const root = document.documentElement;
try {
  const kept = localStorage.getItem("theme");
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;
} catch { /* storage may be switched off */ }

function redraw() {
  shown?.show(readLink().params, true);
}
$("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("theme", root.dataset.theme);
  } catch { /* storage may be switched off */ }
  redraw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

// --- saving, and the keyboard

saveMenu($("save"), () => ({
  main, name: `mini-bert-${view.room.name}`, title: document.title, fail: (text) => { view.error.textContent = text; },
}));
$("skip").addEventListener("click", () => main.focus());
addEventListener("keydown", (event) => {
  const typing = event.target.closest("textarea, input, select");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const place = Number(event.key) - 1;
  if (rooms[place]) location.hash = nav.querySelector(`[data-room="${rooms[place].name}"]`).getAttribute("href");
});

open();
