// The stepper: every operation of the forward pass, its numbers, and where each number comes from.

import { signedBars } from "../parts/bars.js";
import { colour, inkOn } from "../parts/colour.js";
import { digits, make, roving, unpack } from "../parts/dom.js";
import { whole } from "../parts/link.js";
import { heatMap } from "../parts/matrix.js";
import { segmented, sentenceEditor, TEXT } from "../parts/sentence.js";

const PAUSE = 60; // milliseconds before a number that is pointed at is explained
const CELL = 62, LABEL = 92; // pixels of the table of numbers

export default function open(view, params) {
  const state = { text: TEXT, step: "embeddings", layer: -1, head: 0, row: 1, column: 0, from: 0 };
  let list = [], tokens = [], current = null, numbers = null, map = null, cells = [], timer = 0;
  let unsaid = true; // the link names no column

  const editor = sentenceEditor({ value: state.text, onChange: (text) => { state.text = text; load(); } });
  const select = make("select", { "aria-label": "Operation", on: { change: () => go(Number(select.value)) } });
  const back = make("button", { type: "button", class: "quiet", on: { click: () => go(place() - 1) } }, "← Back");
  const next = make("button", { type: "button", class: "strong", on: { click: () => go(place() + 1) } }, "Next →");
  const side = make("nav", { class: "steps", "aria-label": "Operations" });
  const { refresh } = roving(side, "button", () => 1);
  const title = make("h2", { "aria-live": "polite" });
  const about = make("p", { class: "about" });
  const formula = make("p", { class: "formula" });
  const heads = make("div", { class: "options" });
  const drawing = make("div", { class: "scroll" });
  const table = make("div", { class: "scroll numbers" });
  const why = make("aside", { class: "why panel", tabindex: 0, "aria-label": "Where this number comes from" });

  view.root.append(
    editor.element, view.error,
    make("div", { class: "bar unsaved" }, back, select, next),
    make("div", { class: "stepping" }, side,
      make("section", { class: "operation" }, title, formula, about, heads, drawing, table), why));
  new ResizeObserver(() => current && fit()).observe(table);
  view.root.addEventListener("keydown", (event) => {
    if (event.target.closest("textarea, select")) return;
    if (event.key === "n" || event.key === "]") go(place() + 1);
    if (event.key === "p" || event.key === "[") go(place() - 1);
  });

  const place = () => Math.max(0, list.findIndex((one) => one.step === state.step && (one.layer ?? -1) === state.layer));
  const group = (one, number) => (one.layer !== null ? `Block ${one.layer}` : number < list.findIndex((other) => other.layer !== null) ? "Embeddings" : "Output");

  function show(params, keep = false) {
    if (keep) {
      if (current) draw();
      return;
    }
    state.text = params.text ?? TEXT;
    state.step = params.step ?? "embeddings";
    state.layer = whole(params.layer, 0, 99, -1);
    state.head = whole(params.head, 0, 99, 0);
    state.row = whole(params.row, 0, 999, 1);
    state.column = whole(params.column, 0, 99999, 0);
    unsaid = params.column === undefined;
    if (editor.value !== state.text) editor.set(state.text);
    load();
  }

  async function load() {
    const answer = await view.ask("steps", { text: state.text });
    if (!answer) return;
    ({ operations: list, tokens } = answer);
    if (!list.some((one) => one.step === state.step)) state.step = (list.find((one) => one.step === "embeddings") ?? list[0]).step;
    const same = list.filter((one) => one.step === state.step);
    const found = same.find((one) => (one.layer ?? -1) === state.layer) ?? same[0];
    state.layer = found.layer ?? -1;
    state.row = Math.min(state.row, tokens.length - 1);
    const groups = Map.groupBy ? Map.groupBy(list.map((one, number) => [one, number]), ([one, number]) => group(one, number)) : grouped();
    select.replaceChildren(...[...groups].map(([name, members]) => make("optgroup", { label: name },
      members.map(([one, number]) => make("option", { value: number }, full(one))))));
    side.replaceChildren(...[...groups].map(([name, members]) => make("section", {}, make("p", { class: "group" }, name),
      make("ol", {}, members.map(([one, number]) => make("li", {}, make("button", {
        type: "button", "data-number": number, on: { click: () => go(number) },
      }, make("span", {}, short(one.title)), make("small", {}, one.letters))))))));
    go(place());
  }

  function grouped() {
    const found = new Map();
    list.forEach((one, number) => {
      const name = group(one, number);
      if (!found.has(name)) found.set(name, []);
      found.get(name).push([one, number]);
    });
    return found;
  }

  const full = (one) => (one.layer === null ? one.title : `Block ${one.layer}: ${one.title}`);
  const short = (text) => text.replace(/^Feed-forward: /, "").replace(/: the output of the block$/, "").replace(/^./, (letter) => letter.toUpperCase());

  async function go(number) {
    if (number < 0 || number >= list.length) return;
    const one = list[number];
    const other = one.step !== state.step || (one.layer ?? -1) !== state.layer;
    if (other) state.column = 0;
    state.step = one.step;
    state.layer = one.layer ?? -1;
    select.value = String(number);
    back.disabled = number === 0;
    next.disabled = number === list.length - 1;
    for (const button of side.querySelectorAll("button")) {
      if (Number(button.dataset.number) === number) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    }
    const active = side.querySelector("[aria-current]");
    if (!side.contains(document.activeElement)) refresh(active);
    const above = active.offsetTop - side.offsetTop; // only the list scrolls, not the page
    if (above < side.scrollTop || above > side.scrollTop + side.clientHeight - 60) side.scrollTop = above - side.clientHeight / 3;
    remember();
    const answer = await view.ask("values", { text: state.text, step: state.step, layer: state.layer });
    if (!answer) return;
    current = answer;
    numbers = unpack(answer.numbers, Float32Array);
    state.from = 0;
    if ((other || unsaid) && current.labels) state.column = largest();
    unsaid = false;
    draw();
    explain(0);
  }

  // Where a row has the most weight: a key, or a word
  function largest() {
    let best = 0;
    for (let column = 1; column < columns(); column++) if (value(state.row, column) > value(state.row, best)) best = column;
    return best;
  }

  const remember = () => view.link({
    text: state.text, step: state.step, layer: state.layer < 0 ? "" : state.layer, head: state.head || "", row: state.row === 1 ? "" : state.row, column: current?.labels ? state.column : state.column || "",
  });

  // --- the numbers of this operation

  const rows = () => current.size.at(-2), columns = () => current.size.at(-1);
  const hasHeads = () => current.size.length === 3;
  const value = (row, column) => numbers[((hasHeads() ? state.head : 0) * rows() + row) * columns() + column];
  const columnName = (column) => (current.labels ? current.labels[column] : String(current.columns ? current.columns[column] : column));

  function draw() {
    state.column = Math.min(state.column, columns() - 1);
    title.textContent = full(current);
    formula.replaceChildren(make("code", {}, current.formula || " "), make("span", { class: "shape" }, `${current.letters} = ${current.shape.map((one) => one.toLocaleString("en")).join(" × ")}`));
    about.textContent = current.about;
    heads.replaceChildren();
    if (hasHeads()) {
      state.head = Math.min(state.head, current.size[0] - 1);
      heads.append(make("div", { class: "option" }, make("span", { class: "label" }, "Head"), segmented({
        label: "Head", value: String(state.head), choices: Array.from({ length: current.size[0] }, (_, head) => [String(head), String(head)]),
        onChange: (head) => { state.head = Number(head); draw(); explain(0); },
      }).element));
    }
    drawMap();
    fit();
  }

  function drawMap() {
    const names = tokens.map((token) => token.text);
    const offset = (hasHeads() ? state.head : 0) * rows() * columns();
    map = heatMap({
      label: `${current.title}: a heat map of ${rows()} tokens and ${columns()} columns`, values: numbers.subarray(offset, offset + rows() * columns()),
      names, columns: columns(), most: current.scale, signed: current.signed, room: drawing.clientWidth - 8, high: Math.max(9, Math.min(18, 420 / rows())),
      describe: (row, column) => `${names[row]}, column ${columnName(column)}: ${digits(value(row, column), 3)}`,
      onPoint: (row, column) => choose(row, column, true),
      onChoose: (row, column) => choose(row, column, true),
    });
    drawing.replaceChildren(map.element);
  }

  // The table shows as many columns as fit, from `state.from`.
  const shownColumns = () => Math.max(2, Math.min(columns(), Math.floor((table.clientWidth - LABEL) / CELL)));
  let drawn = "";
  function fit(force = false) {
    const count = shownColumns();
    if (state.column < state.from || state.column >= state.from + count) state.from = Math.max(0, Math.min(columns() - count, state.column - Math.floor(count / 2)));
    const name = [state.text, state.step, state.layer, state.head, state.from, count, document.documentElement.dataset.theme].join("\n");
    if (name !== drawn || force) {
      drawn = name;
      drawTable(count);
    }
    map.window(state.from, count);
    mark();
  }

  function drawTable(count) {
    cells = [];
    const head = make("tr", {}, make("th", { scope: "col" }, current.kind === "keys" ? "query \\ key" : "token"),
      Array.from({ length: count }, (_, place) => make("th", { scope: "col" }, make("bdi", {}, columnName(state.from + place)))));
    const body = tokens.map((token, row) => make("tr", {}, make("th", { scope: "row" }, make("bdi", {}, token.text)),
      Array.from({ length: count }, (_, place) => {
        const column = state.from + place, own = value(row, column);
        const cell = make("td", {
          tabindex: -1, "data-row": row, "data-column": column,
          style: { background: colour(own, current.scale, current.signed), color: inkOn(own, current.scale, current.signed) },
        }, digits(own, 2));
        cells.push(cell);
        return cell;
      })));
    table.replaceChildren(make("table", { role: "grid", "aria-label": `Numbers of ${current.title}` }, make("thead", {}, head), make("tbody", {}, body)));
  }

  table.addEventListener("pointerover", (event) => pick(event.target));
  table.addEventListener("focusin", (event) => pick(event.target));
  table.addEventListener("click", (event) => event.target.closest("td")?.focus());
  function pick(target) {
    const cell = target.closest?.("td");
    if (cell) choose(Number(cell.dataset.row), Number(cell.dataset.column), false);
  }
  table.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    choose(Math.max(0, Math.min(rows() - 1, state.row + step[0])), Math.max(0, Math.min(columns() - 1, state.column + step[1])), true);
    cells.find((cell) => Number(cell.dataset.row) === state.row && Number(cell.dataset.column) === state.column)?.focus();
  });

  function choose(row, column, move) {
    if (row === state.row && column === state.column) return;
    state.row = row;
    state.column = column;
    if (move) fit();
    else mark();
    explain(PAUSE);
  }

  function mark() {
    for (const cell of cells) {
      const own = Number(cell.dataset.row) === state.row && Number(cell.dataset.column) === state.column;
      cell.classList.toggle("chosen", own);
      cell.tabIndex = own ? 0 : -1;
    }
    map.point(state.row, state.column, false);
  }

  // --- where one number comes from

  function explain(pause) {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const asked = { text: state.text, step: state.step, layer: state.layer, row: state.row, column: current.columns ? current.columns[state.column] : state.column, head: hasHeads() ? state.head : 0 };
      remember();
      if (!current.explained) {
        why.replaceChildren(heading(value(state.row, state.column)), make("p", {}, "For this layer of this architecture, the lab shows the numbers, but not their sums."));
        return;
      }
      const answer = await view.ask("explain", asked);
      if (answer) drawWhy(answer);
    }, pause);
  }

  const heading = (number) => make("h3", {},
    make("span", { class: "note" }, make("bdi", {}, tokens[state.row].text), `, ${current.labels ? "" : "column "}`, make("bdi", {}, columnName(state.column)), hasHeads() ? `, head ${state.head}` : ""),
    make("output", { class: "big" }, digits(number, 4)));

  function drawWhy(answer) {
    const rows = answer.terms.map((term) => ({ name: term.label, detail: term.detail, value: term.value }));
    if (answer.others) rows.push({ name: `${answer.others.toLocaleString("en")} other terms`, value: answer.rest, rest: true });
    const parts = [heading(answer.value), make("p", { class: "formula" }, make("code", {}, answer.formula))];
    if (rows.length) {
      parts.push(signedBars(rows, "The terms of the sum"), make("p", { class: "total" }, make("span", {}, answer.sum_is), make("b", {}, `= ${digits(answer.sum, 4)}`)));
    }
    if (answer.steps.length) {
      parts.push(make("ol", { class: "then" }, answer.steps.map((step) => make("li", {}, make("span", {}, step.label), make("b", {}, digits(step.value, 4))))));
    }
    if (answer.source) {
      parts.push(make("div", { class: "source" }, make("span", { class: "note" }, `${answer.source.file}, line ${answer.source.line}`), make("pre", {}, make("code", {}, answer.source.code))));
    }
    why.replaceChildren(...parts);
  }

  show(params);
  return { show };
}
