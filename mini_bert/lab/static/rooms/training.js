// Live training: start a run, watch it, pause and resume it, and look back at what the model knew at each checkpoint.

import { bars } from "../parts/bars.js";
import { chart } from "../parts/chart.js";
import { digits, make, percent, svg, unpack } from "../parts/dom.js";
import { heatMap, picture } from "../parts/matrix.js";
import { segmented } from "../parts/sentence.js";

const PAUSE = 1500; // milliseconds between looks at a run
const TIMES = [["60", "1 minute"], ["120", "2"], ["240", "4"], ["600", "10"]];
const OFFSETS = { "-1": "the previous token", 0: "the token itself", 1: "the next token" };

export default function open(view, params) {
  const state = { run: null, step: null, seconds: "240", corpus: "builtin" };
  let data = null, shot = null, timer = 0, wide = 0;

  const path = make("input", { type: "text", "aria-label": "Path of a text file in the folder of the lab", placeholder: "texts/mine.txt", maxlength: 500, spellcheck: "false" });
  const file = make("div", { class: "option", hidden: true }, path);
  const corpus = segmented({
    label: "Text", choices: [["builtin", "Built-in corpus"], ["file", "A file"]], value: state.corpus,
    onChange: (value) => { state.corpus = value; file.hidden = value !== "file"; },
  });
  const time = segmented({ label: "Time", choices: TIMES, value: state.seconds, onChange: (value) => { state.seconds = value; } });
  const startButton = make("button", { type: "button", class: "strong", on: { click: start } }, "Start a run");
  const pauseButton = make("button", { type: "button", on: { click: pause } }, "Pause");
  const resumeButton = make("button", { type: "button", on: { click: resume } }, "Resume");
  const select = make("select", { "aria-label": "Run", on: { change: () => { state.run = select.value; state.step = null; shot = null; look(); } } });
  const line = make("p", { class: "status-line" }); // it changes all the time; screen readers hear the start and the end
  const wrong = make("p", { class: "error", role: "alert" });
  const losses = make("div", { class: "drawn" }), rates = make("div", { class: "drawn" }), norms = make("div", { class: "drawn" });
  const tensors = make("div", { class: "scroll" });
  const tensorNote = make("p", { class: "note" });
  const scrub = make("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": "Checkpoint", on: { input: () => { state.step = data.snapshots[Number(scrub.value)]; choose(); } } });
  const at = make("output", { class: "at" });
  const guesses = make("div", { class: "cards" });
  const heads = make("div", { class: "heads small" });
  const marks = make("ul", { class: "specialised" });
  const doctor = make("div", { class: "doctor" });
  const watched = make("div", { class: "watching" },
    make("section", {}, make("h2", {}, "Loss"), make("p", { class: "note" }, "Blue: on the text it trains on. Orange dots: on held-out text. Dashed: knowing word frequencies only. Thin lines: a head specialises."), losses),
    make("div", { class: "two" },
      make("section", {}, make("h2", {}, "Learning rate"), rates),
      make("section", {}, make("h2", {}, "Norm of the whole gradient"), norms)),
    make("section", {}, make("h2", {}, "Gradient of every tensor"), tensorNote, tensors),
    make("section", { class: "panel" }, make("h2", {}, "What it has learnt"),
      make("div", { class: "scrub" }, make("span", { class: "label" }, "Checkpoint"), scrub, at),
      guesses),
    make("section", {}, make("h2", {}, "Heads"),
      make("p", { class: "note" }, "Attention on the first sentence at this checkpoint: rows are layers, columns are heads. Below each: the offset that gets most weight. The first layer starts with heads that attend to neighbours, because new models are initialised that way; the others have to find out."), heads, marks),
    make("section", {}, make("h2", {}, "The doctor's verdict"), doctor));
  const coming = [
    ["Curves", "Loss, learning rate and the gradient of every tensor, as they happen."],
    ["What it has learnt", "Its guesses for five sentences at each checkpoint, from noise to words that fit."],
    ["Heads", "What each head attends to, and the step at which it specialises."],
    ["The doctor's verdict", "What went well, what did not, and what to try."],
  ];
  const empty = make("section", { class: "coming" }, make("h2", {}, "What you will see"),
    make("div", { class: "cards" }, coming.map(([name, text]) => make("article", { class: "card" }, make("h3", {}, name), make("p", { class: "note" }, text)))),
    make("p", { class: "note" }, "A run is an ordinary run folder in ./runs: all commands work on it, and it stays when the lab is closed."));
  const existing = make("div", { class: "options", hidden: true }, make("div", { class: "option" }, make("span", { class: "label" }, "Shown"), select), pauseButton, resumeButton);

  view.root.append(
    make("section", { class: "panel starting" }, make("h2", {}, "A run"),
      make("div", { class: "options" },
        make("div", { class: "option" }, make("span", { class: "label" }, "Text"), corpus.element), file,
        make("div", { class: "option" }, make("span", { class: "label" }, "Time"), time.element), startButton),
      existing, line),
    view.error, wrong, empty, watched);
  new ResizeObserver(() => {
    if (losses.clientWidth && losses.clientWidth !== wide && data) draw();
  }).observe(view.root);

  function show(params, keep = false) {
    if (keep) {
      if (data) draw();
      return;
    }
    state.run = params.run ?? null;
    state.step = /^\d{1,8}$/.test(params.step ?? "") ? Number(params.step) : null;
    look();
  }

  const remember = () => view.link({ run: state.run, step: state.step });

  async function look() {
    clearTimeout(timer);
    const answer = await view.ask("status", state.run ? { run: state.run } : {});
    if (view.closed) return;
    if (answer) {
      const before = data?.running;
      data = answer;
      state.run = data.run;
      draw();
      if (before && !data.running) view.announce(line.textContent);
      const last = data.snapshots?.at(-1);
      if (last !== undefined && (shot === null || state.step === null)) choose(); // follows the newest
    }
    if (!view.error.textContent || data?.running) timer = setTimeout(look, data?.running ? PAUSE : 4 * PAUSE);
  }

  async function start() {
    const answer = await view.ask("start", { corpus: state.corpus, ...(state.corpus === "file" ? { path: path.value } : {}), seconds: Number(state.seconds) });
    if (!answer) return;
    state.run = answer.run;
    state.step = shot = null;
    view.announce("The run has started.");
    look();
  }
  async function pause() {
    if (await view.ask("pause", {})) look();
  }
  async function resume() {
    if (await view.ask("resume", { run: state.run, seconds: data?.curves?.stopped === "done" ? Number(state.seconds) + Math.ceil(data.curves.seconds ?? 0) : 0 })) look();
  }

  // --- drawing

  const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;

  function draw() {
    const running = data.running !== null, own = running && data.running === data.run, curves = data.curves;
    startButton.disabled = running;
    pauseButton.disabled = !own;
    resumeButton.disabled = running || !data.snapshots?.length;
    resumeButton.textContent = curves?.stopped === "done" ? "Train further" : "Resume";
    const names = data.runs.includes(data.run) || !data.run ? data.runs : [data.run, ...data.runs];
    if ([...select.options].map((one) => one.value).join("\n") !== names.join("\n")) select.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
    select.value = data.run ?? "";
    existing.hidden = !names.length;
    wrong.textContent = data.error;
    empty.hidden = data.run !== null;
    watched.hidden = !curves;
    line.textContent = data.preparing || (own && !curves?.step) ? `${data.run}: the text is being prepared …`
      : !curves ? "" : own ? `${data.run} is running: step ${curves.step.toLocaleString("en")}, ${clock(curves.seconds ?? 0)}${curves.eta === null || curves.eta === undefined ? "" : `, ${clock(curves.eta)} left`}`
        : `${data.run}: ${curves.step.toLocaleString("en")} steps in ${clock(curves.seconds ?? 0)}, ${({ done: "finished", interrupted: "paused", nonfinite: "stopped: the numbers are no longer finite", diverged: "stopped: the loss diverged" })[curves.stopped] ?? "not running"}`;
    if (!curves) return;
    wide = losses.clientWidth;
    const common = { across: curves.step };
    const special = data.specialised.filter((one) => !one.always).map((one) => ({ x: one.step, name: told(one) }));
    const shown = shot ? shot.step : null;
    losses.replaceChildren(chart({
      label: "Loss", width: wide, height: 240, ...common, marks: special, cursor: shown,
      lines: [{ name: "training", points: curves.loss }, { name: "held-out", points: curves.held_out, kind: "dots" }],
      level: curves.unigram === null ? null : { value: curves.unigram, name: "word frequencies" },
    }));
    rates.replaceChildren(chart({ label: "Learning rate", width: rates.clientWidth, height: 150, ...common, least: 0, lines: [{ name: "learning rate", points: curves.lr }] }));
    norms.replaceChildren(chart({ label: "Gradient norm", width: norms.clientWidth, height: 150, ...common, least: 0, lines: [{ name: "norm", points: curves.norm }] }));
    drawTensors(curves.tensors);
    drawScrub();
    drawMarks();
    doctor.replaceChildren(...(data.doctor.length ? data.doctor.map(finding) : [make("p", { class: "note" }, "It looks at the run when it has ended or is paused.")]));
  }

  const short = (name) => name.replace("encoder.blocks.", "").replace("feed_forward.", "").replace("attention_norm", "norm 1").replace("output_norm", "norm 2").replace("attention.", "").replace(".table", "").replace(".gamma", " γ").replace(".beta", " β");

  function drawTensors({ names, steps, norms }) {
    if (!steps.length) {
      tensorNote.textContent = "The first numbers come after 25 steps.";
      tensors.replaceChildren();
      return;
    }
    const most = Math.max(...norms.flat().filter((one) => one !== null), 1e-30);
    const level = (value) => (value ? Math.max(0, 1 + Math.log10(value / most) / 4) : 0); // four powers of ten
    const values = Float32Array.from(names.flatMap((_, row) => norms.map((record) => level(record[row]))));
    const say = (row, column) => `${names[row]} at step ${steps[column]}: ${digits(norms[column][row] ?? 0, 4)}`;
    tensorNote.textContent = "From top to bottom: embeddings, blocks, head. From left to right: time. The stronger the colour, the larger the gradient, on a logarithmic scale.";
    tensors.replaceChildren(heatMap({
      label: "Gradient norms of all tensors over time", values, names: names.map(short), columns: steps.length, most: 1, room: tensors.clientWidth - 8, widest: 60, high: 14,
      describe: say, onPoint: (row, column) => { tensorNote.textContent = say(row, column); },
    }).element);
  }

  function drawScrub() {
    const steps = data.snapshots;
    scrub.disabled = steps.length < 2;
    scrub.max = Math.max(0, steps.length - 1);
    const place = state.step === null ? steps.length - 1 : steps.indexOf(state.step);
    scrub.value = place < 0 ? steps.length - 1 : place;
    const step = steps[Number(scrub.value)];
    at.textContent = step === undefined ? "none yet" : `step ${step.toLocaleString("en")}${state.step === null ? ", the newest" : ""}`;
    scrub.setAttribute("aria-valuetext", at.textContent);
  }

  async function choose() {
    if (state.step === data.snapshots.at(-1)) state.step = null;
    drawScrub();
    remember();
    const step = data.snapshots[Number(scrub.value)];
    if (step === undefined || shot?.step === step) return;
    const answer = await view.ask("snapshot", { run: state.run, step });
    if (!answer) return;
    shot = answer;
    drawShot();
    draw();
  }

  function drawShot() {
    guesses.replaceChildren(...shot.sentences.map((one) => make("section", { class: "card" },
      make("h3", {}, make("span", {}, one.tokens.filter((token) => !["cls", "sep"].includes(token.role)).flatMap((token, place) => [place ? " " : "", token.role === "mask" ? make("span", { class: "own" }, "____") : make("bdi", {}, token.text)]))),
      bars(one.guesses.map((guess) => ({ name: guess.word, share: guess.p, mark: guess.word === one.word })), { label: "Guesses" }),
      make("p", { class: "note" }, make("bdi", {}, one.word), one.p === null ? " is not one token of this vocabulary" : ` has ${percent(one.p)}`))));
    const weights = unpack(shot.weights, Uint16Array), T = Math.round(Math.sqrt(weights.length / (shot.layers * shot.heads)));
    heads.style.setProperty("--heads", shot.heads);
    heads.replaceChildren(...Array.from({ length: shot.layers * shot.heads }, (_, head) => {
      const values = Float32Array.from(weights.subarray(head * T * T, (head + 1) * T * T), (one) => Math.sqrt(one / 65535));
      const best = shot.offsets[head].indexOf(Math.max(...shot.offsets[head])) - 3;
      const name = `layer ${Math.floor(head / shot.heads)}, head ${head % shot.heads}: mostly ${whereTo(best)}, ${percent(shot.offsets[head][best + 3])}`;
      return make("figure", {}, svg("svg", { viewBox: `0 0 ${T} ${T}`, width: 76, height: 76, role: "img", "aria-label": name },
        svg("image", { width: T, height: T, "image-rendering": "pixelated", href: picture(values, T, T, 1, false) })),
      make("figcaption", { class: "name" }, `${Math.floor(head / shot.heads)}.${head % shot.heads} ${sign(best)} ${percent(shot.offsets[head][best + 3])}`));
    }));
  }

  const sign = (offset) => (offset > 0 ? `+${offset}` : offset < 0 ? `−${-offset}` : "0");
  const whereTo = (offset) => OFFSETS[offset] ?? `${Math.abs(offset)} tokens ${offset < 0 ? "before" : "after"}`;
  const told = (one) => `Layer ${one.layer}, head ${one.head}: ${percent(one.share)} on ${whereTo(one.offset)}, ${one.always ? "from the first checkpoint" : `since step ${one.step.toLocaleString("en")}`}`;

  function drawMarks() {
    marks.replaceChildren(...(data.specialised.length ? data.specialised.map((one) => make("li", { class: one.always ? "" : "new" }, told(one)))
      : [make("li", {}, `No head gives more than ${percent(data.threshold)} of its weight to one offset yet.`)]));
  }

  const finding = (one) => make("section", { class: `finding ${one.level}` }, make("h3", {}, one.title), make("p", {}, one.what), make("p", {}, one.why), one.try ? make("p", { class: "note" }, one.try) : null);

  show(params);
  return { show };
}
