// Backward mode: the gradient from the loss to the embeddings, and any weight against a finite difference.

import { digits, make, percent, unpack } from "../parts/dom.js";
import { flowPicture, norm } from "../parts/flow.js";
import { whole } from "../parts/link.js";
import { markdown } from "../parts/markdown.js";
import { heatMap } from "../parts/matrix.js";
import { segmented, sentenceEditor, TEXT, tokenRow } from "../parts/sentence.js";

const HIDDEN = [4]; // of the first sentence
const EXPONENTS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

export default function open(view, params) {
  const state = { text: TEXT, hidden: HIDDEN, step: "logits", layer: -1, head: 0, tensor: null, row: null, column: null, exponent: 5 };
  let data = null, picture = null, current = null, numbers = null, part = null;

  const editor = sentenceEditor({ value: state.text, onChange: (text) => { state.text = text; state.hidden = []; load(); } });
  const row = tokenRow({ label: "Tokens; press one to hide it or show it", onPress: press });
  const lossLine = make("p", { class: "loss-line", role: "status" });
  const back = make("button", { type: "button", class: "quiet", on: { click: () => move(-1) } }, "← Towards the loss");
  const next = make("button", { type: "button", class: "strong", on: { click: () => move(1) } }, "Further back →");
  const flowNote = make("p", { class: "note" });
  const holder = make("div", { class: "flowing" });
  const title = make("h2", { "aria-live": "polite" });
  const formula = make("p", { class: "formula" });
  const about = make("p", { class: "about" });
  const heads = make("div", { class: "options" });
  const drawing = make("div", { class: "scroll" });
  const told = make("p", { class: "told note" });
  const source = make("div", { class: "source" });
  const text = make("div", { class: "text", tabindex: 0, role: "region", "aria-label": "Derivation" });
  const derivation = make("details", { class: "derivation", on: { toggle: () => derivation.open && current && derive(current.derivation) } }, make("summary", {}), text);
  const select = make("select", { "aria-label": "Weights", on: { change: () => { state.tensor = select.value; state.row = state.column = null; loadWeights(); } } });
  const grid = make("div", { class: "scroll" });
  const gridNote = make("p", { class: "note" });
  const rowField = number("Row", (value) => { state.row = value; check(); });
  const columnField = number("Column", (value) => { state.column = value; check(); });
  const step = make("select", { "aria-label": "Step size h", on: { change: () => { state.exponent = Number(step.value); check(); } } },
    EXPONENTS.map((one) => make("option", { value: one }, `10⁻${[...String(one)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("")}`)));
  step.value = "5";
  const result = make("div", { class: "checked", role: "status" });

  view.root.append(
    editor.element, view.error,
    make("section", { class: "panel", hidden: true }, make("h2", {}, "Press words to hide them: the loss is how badly they are guessed"), row.element, lossLine),
    make("div", { class: "backing", hidden: true },
      make("section", {}, make("h2", {}, "The flow of the gradient"),
        flowNote, holder),
      make("div", { class: "backed" },
        make("section", { class: "operation" }, make("div", { class: "bar unsaved" }, back, next), title, formula, about, heads, drawing, told, source, derivation),
        make("section", { class: "panel checking" }, make("h2", {}, "Check a weight"),
          make("div", { class: "options" }, make("div", { class: "option" }, make("span", { class: "label" }, "Weights"), select)),
          gridNote, grid,
          make("div", { class: "options" }, rowField.element, columnField.element,
            make("div", { class: "option" }, make("span", { class: "label" }, "Step size h"), step)),
          result))));

  function number(label, act) {
    const field = make("input", { type: "number", min: 0, step: 1, "aria-label": label, on: { change: () => act(whole(field.value, 0, Number(field.max), 0)) } });
    return { element: make("div", { class: "option" }, make("span", { class: "label" }, label), field), field };
  }

  function show(params, keep = false) {
    if (keep) {
      if (current) draw();
      if (part) drawWeights();
      return;
    }
    state.text = params.text ?? TEXT;
    state.hidden = params.hidden === undefined ? (state.text === TEXT ? HIDDEN : []) : params.hidden.split(",").filter((one) => /^\d{1,3}$/.test(one)).map(Number);
    state.step = params.step ?? "logits";
    state.layer = whole(params.layer, 0, 99, -1);
    state.head = whole(params.head, 0, 99, 0);
    state.tensor = params.tensor ?? null;
    state.row = whole(params.row, 0, 999999, null);
    state.column = whole(params.column, 0, 999999, null);
    if (editor.value !== state.text) editor.set(state.text);
    load();
  }

  const remember = () => view.link({
    text: state.text, hidden: state.hidden.join(","), step: state.step, layer: state.layer < 0 ? "" : state.layer, head: state.head || "", tensor: state.tensor, row: state.row, column: state.column,
  });

  const asked = (more = {}) => ({ text: state.text, hidden: state.hidden, ...more });

  async function load() {
    const answer = await view.ask("flow", asked());
    if (!answer) return;
    data = answer;
    for (const part of view.root.querySelectorAll(":scope > [hidden]")) part.hidden = false; // there is a loss
    state.hidden = data.hidden;
    row.show(data.tokens, { pressed: new Set(data.hidden), fixed: (place) => ["cls", "sep"].includes(data.tokens[place].role) });
    const words = data.words.flatMap((word, place) => [place ? ", " : "", "p(", make("bdi", {}, word.word), `) = ${percent(word.p)}`]);
    lossLine.replaceChildren(make("b", {}, `Loss ${digits(data.loss, 3)}`), data.words.length > 1 ? ", the mean of −ln p, with " : " = −ln p, with ", ...words);
    picture = flowPicture({ ...data, onChoose: (step, layer) => go(data.operations.findIndex((one) => one.step === step && one.layer === layer)) });
    const has = (step) => data.operations.some((one) => one.step === step);
    flowNote.textContent = `Widths are norms of gradients. ${has("output_sum") ? "Blue: past attention and the network. Orange: through them." : ""} ${has("scores") ? ""
      : `For this architecture the flow is not drawn inside ${has("output_sum") ? "attention" : "the blocks"}; but any weight there can be checked.`}`;
    const scrolled = holder.scrollTop;
    holder.replaceChildren(picture.element);
    holder.scrollTop = scrolled;
    select.replaceChildren(...data.tensors.map((one) => make("option", { value: one.name }, `${one.name} (${one.shape.join(" × ")}), |g| ${norm(one.norm)}`)));
    if (!data.tensors.some((one) => one.name === state.tensor)) state.tensor = null;
    go(place(), state.tensor === null);
    if (state.tensor !== null) loadWeights();
  }

  function press(place) {
    const hidden = new Set(state.hidden);
    if (!hidden.delete(place)) hidden.add(place);
    if (!hidden.size) {
      view.announce("At least one word is hidden: without one there is no loss.");
      return;
    }
    state.hidden = [...hidden].sort((a, b) => a - b);
    load();
  }

  const place = () => {
    const same = data.operations.findIndex((one) => one.step === state.step && (one.layer ?? -1) === state.layer);
    return same >= 0 ? same : Math.max(0, data.operations.findIndex((one) => one.step === state.step));
  };
  const move = (by) => go(place() + by);

  async function go(number, weights = true) {
    const one = data.operations[number];
    if (!one) return;
    state.step = one.step;
    state.layer = one.layer ?? -1;
    back.disabled = number === 0;
    next.disabled = number === data.operations.length - 1;
    const share = picture.mark(one.step, one.layer), line = share * picture.element.getBoundingClientRect().height;
    if (line < holder.scrollTop + 30 || line > holder.scrollTop + holder.clientHeight - 40) holder.scrollTop = line - holder.clientHeight / 3;
    remember();
    const answer = await view.ask("values", asked({ step: state.step, layer: state.layer }));
    if (!answer) return;
    current = answer;
    numbers = unpack(answer.numbers, Float32Array);
    draw();
    const wanted = answer.tensors.length ? answer.tensors : [state.tensor ?? data.tensors.at(-1).name];
    if (weights && !(part && wanted.includes(part.tensor) && wanted.includes(state.tensor))) {
      state.tensor = wanted[0];
      state.row = state.column = null;
      loadWeights();
    }
  }

  // --- the gradient at an operation

  function draw() {
    const hasHeads = current.size.length === 3, [rows, columns] = current.size.slice(-2);
    title.textContent = `${current.layer === null ? "" : `Block ${current.layer}: `}${current.title}`;
    formula.replaceChildren(make("code", {}, current.formula), make("span", { class: "shape" }, `${current.shape.map((one) => one.toLocaleString("en")).join(" × ")},  |g| = ${norm(current.norm)}`));
    about.textContent = current.about;
    heads.replaceChildren();
    if (hasHeads) {
      state.head = Math.min(state.head, current.size[0] - 1);
      heads.append(make("div", { class: "option" }, make("span", { class: "label" }, "Head"), segmented({
        label: "Head", value: String(state.head), choices: Array.from({ length: current.size[0] }, (_, head) => [String(head), String(head)]),
        onChange: (head) => { state.head = Number(head); draw(); remember(); },
      }).element));
    }
    const offset = (hasHeads ? state.head : 0) * rows * columns;
    const value = (row, column) => numbers[offset + row * columns + column];
    const name = (column) => (current.labels ? current.labels[column] : `column ${column}`);
    const say = (row, column) => `${current.rows[row]}, ${name(column)}: ${norm2(value(row, column))}`;
    const narrow = current.labels !== null;
    const map = heatMap({
      label: `Gradient at ${current.title}`, values: numbers.subarray(offset, offset + rows * columns), names: current.rows, across: narrow ? current.labels : null,
      columns, most: current.scale, signed: true, room: drawing.clientWidth - 8, high: narrow ? null : Math.max(9, Math.min(18, 420 / rows)), least: narrow ? 11 : 0,
      describe: say, onPoint: (row, column) => { told.textContent = say(row, column); }, onChoose: (row, column) => { told.textContent = say(row, column); },
    });
    drawing.replaceChildren(map.element);
    told.textContent = "Blue: a larger number would raise the loss. Orange: it would lower it. Point at a cell for its gradient.";
    source.replaceChildren(make("span", { class: "note" }, `${current.source.file}, line ${current.source.line}`), make("pre", {}, make("code", {}, current.source.code)));
    derivation.firstChild.textContent = `Open the derivation: ${current.derivation.title}`;
    if (derivation.open) derive(current.derivation);
  }

  // --- how a formula is derived

  let derived = "";
  async function derive({ page, anchor }) {
    if (derived === `${page}#${anchor}`) return;
    const answer = await view.ask("derivation", { page, anchor });
    if (!answer) return;
    derived = `${page}#${anchor}`;
    const choice = make("select", { "aria-label": "Derivation", on: { change: () => derive(named(answer.all[choice.value])) } },
      answer.all.map(([, , title], number) => make("option", { value: number }, title)));
    choice.value = answer.all.findIndex(([own, at]) => own === page && at === anchor);
    const follow = (target) => {
      const [file, at = ""] = target.split("#");
      const found = answer.all.find(([own, other]) => own === (file || page) && (!at || other === at));
      return found && (() => derive(named(found)));
    };
    text.replaceChildren(make("div", { class: "options unsaved" }, choice), make("h3", {}, answer.title), ...markdown(answer.text, follow),
      make("p", { class: "note" }, `docs/derivations/${page}, which the tests recompute.`));
    text.scrollTop = 0;
  }
  const named = ([page, anchor]) => ({ page, anchor });

  const norm2 = (value) => (value < 0 ? `−${norm(-value)}` : norm(value));

  // --- a weight, and a finite difference

  async function loadWeights() {
    select.value = state.tensor;
    const answer = await view.ask("weights", asked({ tensor: state.tensor }));
    if (!answer) return;
    part = answer;
    rowField.field.max = part.shape[0] - 1;
    columnField.field.max = part.shape[1] - 1;
    if (state.row === null || state.row >= part.shape[0]) state.row = part.largest[0];
    if (state.column === null || state.column >= part.shape[1]) state.column = part.largest[1];
    drawWeights();
    check();
  }

  let map = null;
  function drawWeights() {
    const values = unpack(part.numbers, Float32Array), weights = unpack(part.weights, Float32Array), wide = part.columns.length;
    const say = (row, column) => `weight [${part.rows[row]}, ${part.columns[column]}] = ${digits(weights[row * wide + column], 4)}, gradient ${norm2(values[row * wide + column])}`;
    map = heatMap({
      label: "Gradients of weights; Enter checks one", values, names: part.rows.map(String), across: part.columns.map(String), columns: wide, most: part.scale, signed: true,
      room: grid.clientWidth - 8, least: 15, widest: 22, describe: say, onPoint: (row, column) => { gridNote.textContent = say(row, column); },
      onChoose: (row, column) => { state.row = part.rows[row]; state.column = part.columns[column]; check(); },
    });
    grid.replaceChildren(map.element);
    mark();
    const all = part.shape[0] <= part.rows.length && part.shape[1] <= wide;
    gridNote.textContent = `${all ? "All gradients" : `The ${part.rows.length} × ${wide} largest rows and columns`} of ${part.shape.map((one) => one.toLocaleString("en")).join(" × ")}${part.zero > 0 ? `; ${percent(part.zero)} of all are 0` : ""}. Press a cell, or type any row and column.`;
  }

  function mark() {
    const at = [part.rows.indexOf(state.row), part.columns.indexOf(state.column)];
    if (at[0] >= 0 && at[1] >= 0) map.point(...at, false);
    else map.clear();
  }

  async function check() {
    rowField.field.value = state.row;
    columnField.field.value = state.column;
    if (part) mark();
    remember();
    const answer = await view.ask("check", asked({ tensor: state.tensor, row: state.row, column: state.column, exponent: state.exponent }));
    if (answer) drawCheck(answer);
  }

  function drawCheck(answer) {
    const line = (name, value, strong) => make("tr", { class: strong ? "strong" : "" }, make("th", { scope: "row" }, name), make("td", {}, value));
    const long = (value) => value.toPrecision(10).replace("-", "−");
    const rounding = Math.abs(answer.analytic - answer.numeric) < (1e-14 * Math.max(1, Math.abs(answer.plus))) / answer.h; // of the two losses
    const good = answer.error < 1e-5 || rounding;
    result.replaceChildren(
      make("table", {}, make("tbody", {},
        line(`w = ${answer.tensor}[${answer.row}, ${answer.column}]`, digits(answer.weight, 6)),
        line("loss(w + h)", answer.plus.toFixed(12)), line("loss(w − h)", answer.minus.toFixed(12)),
        line("(loss(w + h) − loss(w − h)) / 2h", long(answer.numeric), true), line("from backward", long(answer.analytic), true))),
      make("p", { class: good ? "verdict good" : "verdict" },
        answer.analytic === 0 && answer.numeric === 0 ? "Both are 0: this weight has no part in the loss of these words."
          : answer.error >= 1e-5 && rounding ? `They agree as far as the digits of the losses go: the gradient is tiny (relative difference ${answer.error.toExponential(0).replace("-", "−")}).`
          : good ? `They agree to ${Math.max(1, Math.floor(-Math.log10(Math.max(answer.error, 1e-15))))} digits (relative difference ${answer.error.toExponential(0).replace("-", "−")}).`
            : `They differ by ${answer.error >= 0.01 ? percent(Math.min(1, answer.error)) : answer.error.toExponential(0).replace("-", "−")}. ${answer.h > 1e-4 ? "h is large, so the curve of the loss counts." : answer.h < 1e-7 ? "h is small, so little is left of the digits of two nearly equal losses." : "Perhaps a ReLU switches between the two points."} Try another h.`));
  }

  show(params);
  return { show };
}
