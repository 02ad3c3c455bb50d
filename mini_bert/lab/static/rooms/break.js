// Break it: choose a mistake, predict, train both models side by side, and read what happened and why.

import { chart } from "../parts/chart.js";
import { digits, make, roving } from "../parts/dom.js";

const PAUSE = 1000; // milliseconds between looks
const SECONDS = 60;

export default function open(view, params) {
  const state = { fault: null, guess: null };
  let about = null, data = null, timer = 0, drawnWide = 0, mine = false;

  const list = make("div", { class: "faults", role: "group", "aria-label": "Mistakes" });
  const { refresh } = roving(list, "button", () => 1);
  const lines = make("div", { class: "changed" });
  const note = make("p", { class: "note" });
  const guesses = make("div", { class: "guesses", role: "group", "aria-label": "Your prediction" });
  const startButton = make("button", { type: "button", class: "strong", on: { click: start } }, "Run both");
  const stopButton = make("button", { type: "button", on: { click: stop } }, "Stop");
  const line = make("p", { class: "status-line" });
  const drawing = make("div", { class: "drawn" });
  const running = make("section", {}, make("h2", {}, "Side by side"), make("p", { class: "note" }, "Blue: healthy. Orange: broken. Dashed: what can be learnt without context."), drawing);
  const result = make("div", { class: "broken-result" });

  view.root.append(
    view.error,
    make("div", { class: "breaking" },
      make("section", {}, make("h2", {}, "1. Choose a mistake"), list),
      make("section", { class: "panel" }, make("h2", {}, "2. Predict, then run"), lines, note, guesses,
        make("div", { class: "options" }, startButton, stopButton, line))),
    running, result);
  new ResizeObserver(() => {
    if (drawing.clientWidth && drawing.clientWidth !== drawnWide && data?.curves) draw();
  }).observe(view.root);

  function show(params, keep = false) {
    if (keep) {
      if (data) draw();
      return;
    }
    state.fault = params.fault ?? null;
    load();
  }

  async function load() {
    about ??= await view.ask("faults", {});
    if (!about) return;
    if (!about.faults.some((one) => one.name === state.fault)) state.fault = about.faults[0].name;
    list.replaceChildren(...about.faults.map((one) => make("button", { type: "button", "data-fault": one.name, on: { click: () => choose(one.name) } }, one.title)));
    guesses.replaceChildren(...about.guesses.map(([name, text]) => make("button", { type: "button", value: name, on: { click: () => { state.guess = name; drawChoice(); if (data) draw(); } } }, text)));
    note.textContent = `A small Mini-BERT (${about.model}) learns sentences such as “${about.example}” in ${about.steps} steps; an adjective, a noun and another word are hidden.`;
    drawChoice();
    look();
  }

  function choose(name) {
    if (name === state.fault) return;
    state.fault = name;
    state.guess = null;
    mine = false;
    drawChoice();
    if (data) draw();
  }

  function drawChoice() {
    const one = about.faults.find((fault) => fault.name === state.fault);
    for (const button of list.children) button.setAttribute("aria-pressed", String(button.dataset.fault === state.fault));
    refresh(list.querySelector("[aria-pressed='true']"));
    for (const button of guesses.children) button.setAttribute("aria-pressed", String(button.value === state.guess));
    lines.replaceChildren(make("p", {}, make("span", { class: "label" }, "right"), make("code", {}, one.right)), make("p", { class: "wrong" }, make("span", { class: "label" }, "broken"), make("code", {}, one.wrong)),
      one.setting ? make("p", {}, make("span", { class: "label" }, "both"), make("span", { class: "note" }, one.setting)) : "");
    startButton.disabled = state.guess === null || data?.running === true;
    stopButton.disabled = data?.running !== true;
    view.link({ fault: state.fault });
  }

  async function start() {
    const answer = await view.ask("start", { fault: state.fault, seconds: SECONDS });
    if (!answer) return;
    mine = true;
    look();
  }
  async function stop() {
    if (await view.ask("stop", {})) look();
  }

  async function look() {
    clearTimeout(timer);
    const answer = await view.ask("status", {});
    if (view.closed) return;
    if (answer) {
      const before = data?.running;
      data = answer;
      if (before && data.outcome) view.announce(`Finished. ${title(data.outcome)}.`);
      if (data.running && data.fault !== state.fault) { // another tab has started it
        state.fault = data.fault;
        state.guess = null;
      }
      drawChoice();
      draw();
    }
    if (data?.running) timer = setTimeout(look, PAUSE);
  }

  const title = (name) => about.guesses.find(([own]) => own === name)[1];

  function draw() {
    const own = data.fault === state.fault;
    running.hidden = result.hidden = !own || !data.curves;
    const steps = data.curves ? Math.max(0, ...Object.values(data.curves).map((points) => points.at(-1)?.[0] ?? 0)) : 0;
    line.textContent = data.running ? (steps ? `Running: step ${steps} of ${data.steps}` : "Starting …") : state.guess === null && !own ? "Make a prediction first." : "";
    if (!own || !data.curves) return;
    drawnWide = drawing.clientWidth;
    const highest = Math.max(...Object.values(data.curves).flat().map(([, loss]) => loss));
    const most = Math.max(data.baseline, data.curves.healthy[0]?.[1] ?? 0) * 1.25;
    drawing.replaceChildren(chart({
      label: "Loss of both models", width: drawnWide, height: 260, across: data.steps, least: 0, most: Math.max(1, most),
      lines: [{ name: "healthy", points: data.curves.healthy }, { name: "broken", points: data.curves.broken, kind: "other" }],
      level: { value: data.baseline, name: "without context" },
    }), highest > most ? make("p", { class: "note" }, `The broken model is beyond the top of the chart: its loss went up to ${highest.toLocaleString("en", { maximumFractionDigits: 0 })}.`) : "");
    if (!data.outcome) {
      result.replaceChildren(data.running ? "" : make("p", { class: "note" }, "They were stopped before their first record. Run them again."));
      return;
    }
    const guess = mine ? state.guess : null;
    const check = (error) => (error === null ? "not measured" : error < 1e-5 ? `right: the largest relative error is ${error.toExponential(0).replace("-", "−")}` : `wrong: the largest relative error is ${digits(error, 2)}`);
    const verdict = (side, name) => make("section", {}, make("h3", {}, name), make("p", { class: "note" }, `Gradients ${check(data.errors[side])}.`),
      data.doctor[side].map((one) => make("section", { class: `finding ${one.level}` }, make("h4", {}, one.title), make("p", {}, one.what), make("p", {}, one.why))));
    result.replaceChildren(
      make("section", { class: "panel" }, make("h2", {}, "What happened"),
        make("p", { class: "happened" }, make("b", {}, `${title(data.outcome)}.`), guess === null ? "" : guess === data.outcome ? " As you predicted." : ` You predicted: ${title(guess).toLowerCase()}.`),
        make("p", { class: "about" }, data.why)),
      make("section", {}, make("h2", {}, "The doctor's verdict"), make("p", { class: "note" }, "The doctor reads the records of a run, not its code, and a finite difference checks the gradients."), make("div", { class: "two spaced" }, verdict("healthy", "Healthy"), verdict("broken", "Broken"))));
  }

  show(params);
  return { show };
}
