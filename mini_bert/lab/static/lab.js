// The shell of the page: navigation, links, theme, and the place where a room is shown.

import { about } from "./parts/api.js";
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
  model: null, // the chosen model; null: the first
  about: null, // a promise: the names of the models
  keys: true, // whether single letters and digits do something
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
    const { model } = shell;
    for (const link of nav.querySelectorAll("a")) {
      link.href = link.dataset.room === name ? linkTo(name, { ...params, model }) : linkTo(link.dataset.room, { text: params.text, model });
    }
  },
};

// --- rooms

nav.append(...rooms.map((room) => make("a", { href: linkTo(room.name), "data-room": room.name }, room.tab)));

async function open() {
  const { name, params } = readLink();
  const room = rooms.find((one) => one.name === name) ?? rooms[0];
  for (const link of nav.querySelectorAll("a")) {
    if (link.dataset.room === room.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const { model = null } = params;
  if (shown?.room === room && shell.model === model) {
    shown.show(params);
    return;
  }
  shown = null; // until the module of the room has arrived
  shell.model = model;
  list();
  const own = ++turn;
  view?.close();
  view = new View(room, shell);
  document.title = `${room.title} · Mini-BERT lab`;
  shell.linked(room.name, params);
  const heading = make("h1", {}, room.title);
  main.replaceChildren(heading, make("p", { class: "lead" }, room.lead), view.root);
  if (name && name !== room.name) view.fail("room", "There is no such room; this is the first one.");
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

// --- the model

const models = $("model");
models.addEventListener("change", () => {
  const { name, params } = readLink();
  location.hash = linkTo(name || rooms[0].name, { ...params, model: models.selectedIndex ? models.value : undefined });
});
function mark() {
  if (models.options.length) models.value = shell.model ?? models.options[0].value;
}
// Again whenever a room is opened: a new run is a new model.
function list() {
  shell.about = about();
  shell.about.then(({ model, models: names }) => {
    models.replaceChildren(...[model, ...names.filter((name) => name !== model)].map((name) => make("option", { value: name }, name)));
    models.hidden = names.length < 2;
    mark();
  }).catch(() => { /* the first question to the server says that it does not answer */ });
}

// --- theme

const root = document.documentElement;
const kept = (name) => {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // storage may be switched off
  }
};
const keep = (name, value) => {
  try {
    localStorage.setItem(name, value);
  } catch { /* storage may be switched off */ }
};
if (["light", "dark"].includes(kept("theme"))) root.dataset.theme = kept("theme");

function redraw() {
  shown?.show(readLink().params, true);
}
$("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  keep("theme", root.dataset.theme);
  redraw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

// --- saving, and the keyboard

saveMenu($("save"), () => ({
  main, name: `mini-bert-${view.room.name}`, title: document.title, fail: (text) => view.fail("save", text),
}));
$("skip").addEventListener("click", () => main.focus());
const keys = $("keys");
keys.checked = shell.keys = kept("keys") !== "off";
keys.addEventListener("change", () => {
  shell.keys = keys.checked;
  keep("keys", keys.checked ? "on" : "off");
});
addEventListener("keydown", (event) => {
  const typing = event.target.closest("textarea, input, select");
  if (!shell.keys || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const place = Number(event.key) - 1;
  if (rooms[place]) location.hash = nav.querySelector(`[data-room="${rooms[place].name}"]`).getAttribute("href");
});

open();
