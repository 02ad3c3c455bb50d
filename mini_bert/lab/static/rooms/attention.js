// The attention room: a grid of heads, one head as matrix or arcs, one query number by number, saliency, heads switched off.

import { bars } from "../parts/bars.js";
import { colour, inkOn } from "../parts/colour.js";
import { digits, make, percent, roving, svg, unpack } from "../parts/dom.js";
import { whole } from "../parts/link.js";
import { heatMap, picture } from "../parts/matrix.js";
import { segmented, sentenceEditor, TEXT, toggle, tokenRow } from "../parts/sentence.js";

const LEAST = 0.03; // weight of an arc that is drawn
const THUMB = 76; // pixels

export default function open(view, params) {
  const state = { text: TEXT, layer: 0, head: 0, position: null, special: true, way: "matrix", off: new Set() };
  let data = null, weights = null, changes = null, saliency = null, asked = 0;

  const editor = sentenceEditor({ value: state.text, onChange: (text) => { state.text = text; state.position = null; load(); } });
  const row = tokenRow({ label: "Tokens; press one to make it the query", onPress: (place) => { state.position = place; focusToken(); } });
  const way = segmented({ label: "Drawing", choices: [["matrix", "Matrix"], ["arcs", "Arcs"]], value: state.way, onChange: (value) => { state.way = value; drawHead(); remember(); } });
  const special = toggle({ label: "Show [CLS] and [SEP]", value: true, onChange: (on) => { state.special = on; draw(); } });
  const grid = make("div", { class: "heads", role: "group", "aria-label": "All heads: rows are layers, columns are heads" });
  const { refresh } = roving(grid, "button", () => data?.heads ?? 1);
  const barsNote = make("div", {}, make("p", { class: "note" }, "The bar below a map shows how much the guess of the chosen word changes without this head."));
  const title = make("h2", { "aria-live": "polite" });
  const drawing = make("div", { class: "scroll drawing" });
  const told = make("p", { class: "told note", role: "status" });
  const query = make("div", { class: "scroll query", tabindex: 0, role: "region", "aria-label": "One query against all keys" });
  const queryTitle = make("h2", {});
  const recipe = make("p", { class: "note" });
  const salient = make("div", {});
  const without = make("div", {});
  const limits = make("p", { class: "warning" });

  view.root.append(
    editor.element, view.error,
    make("section", { class: "panel" }, make("h2", {}, "Press a token: the query, and the word to guess"), row.element),
    make("div", { class: "attending" },
      make("section", {}, make("h2", {}, "All heads"), make("p", { class: "note" }, "Rows are layers, columns are heads."), barsNote, grid),
      make("section", { class: "head" }, title,
        make("div", { class: "options" }, way.element, special.element), drawing, told)),
    make("section", {}, queryTitle, recipe, query),
    limits,
    make("div", { class: "two" },
      make("section", { class: "panel" }, make("h2", {}, "Saliency"), salient),
      make("section", { class: "panel" }, make("h2", {}, "Without a head"), without)));

  function show(params, keep = false) {
    if (keep) {
      if (data) drawAll();
      return;
    }
    state.text = params.text ?? TEXT;
    state.layer = whole(params.layer, 0, 99, 0);
    state.head = whole(params.head, 0, 99, 0);
    state.position = whole(params.position, 0, 999, null);
    state.way = params.way === "arcs" ? "arcs" : "matrix";
    state.off = new Set((params.off ?? "").split(",").filter((one) => /^\d{1,3}$/.test(one)).map(Number));
    way.set(state.way);
    if (editor.value !== state.text) editor.set(state.text);
    load();
  }

  const remember = () => view.link({
    text: state.text, layer: state.layer, head: state.head, position: state.position ?? "", way: state.way === "arcs" ? "arcs" : "", off: [...state.off].join(","),
  });

  async function load() {
    const answer = await view.ask("maps", { text: state.text });
    if (!answer) return;
    data = answer;
    weights = unpack(data.weights, Uint16Array);
    state.layer = Math.min(state.layer, data.layers - 1);
    state.head = Math.min(state.head, data.heads - 1);
    state.off = new Set([...state.off].filter((one) => one < data.layers * data.heads));
    if (state.position === null || state.position >= data.tokens.length) state.position = data.position;
    changes = saliency = null;
    limits.textContent = `Attention is not explanation. ${data.limits}`;
    drawAll();
    focusToken();
  }

  const T = () => data.tokens.length;
  const weight = (layer, head, i, j) => weights[((layer * data.heads + head) * T() + i) * T() + j] / 65535;
  const visible = () => data.tokens.map((token, place) => [token, place]).filter(([token]) => state.special || !["cls", "sep"].includes(token.role)).map(([, place]) => place);
  const isWord = (place) => !["cls", "sep"].includes(data.tokens[place].role);

  function drawAll() {
    drawGrid();
    draw();
    drawSalient();
  }

  function draw() {
    drawTokens();
    drawHead();
  }

  function drawTokens() {
    row.show(data.tokens, { current: state.position });
  }

  // --- the grid of heads

  function part(layer, head, places) {
    const values = new Float32Array(places.length ** 2);
    places.forEach((i, y) => places.forEach((j, x) => { values[y * places.length + x] = Math.sqrt(weight(layer, head, i, j)); }));
    return values;
  }

  function drawGrid() {
    const places = visible(), n = places.length;
    const most = Math.max(1e-9, ...(changes ?? [1]));
    const focused = [...grid.children].indexOf(document.activeElement); // the keyboard stays where it is
    grid.style.setProperty("--heads", data.heads);
    const buttons = [];
    for (let layer = 0; layer < data.layers; layer++) for (let head = 0; head < data.heads; head++) {
      const own = layer * data.heads + head, pattern = data.patterns[own];
      const chosen = layer === state.layer && head === state.head;
      const off = state.off.has(own);
      buttons.push(make("button", {
        type: "button", "aria-pressed": String(chosen), class: off ? "off" : "", tabindex: chosen ? 0 : -1,
        "aria-label": `${`${layer}.${head} ${off ? "off" : pattern}`.trim()}: layer ${layer}, head ${head}${pattern ? `, mostly ${pattern}` : ""}${off ? ", switched off" : ""}`,
        on: { click: () => choose(layer, head) },
      },
      svg("svg", { viewBox: `0 0 ${n} ${n}`, width: THUMB, height: THUMB, "aria-hidden": "true" },
        svg("image", { width: n, height: n, preserveAspectRatio: "none", "image-rendering": "pixelated", href: picture(part(layer, head, places), n, n, 1, false) })),
      make("span", { class: "meter", "aria-hidden": "true" }, make("span", { style: { width: changes ? `${(100 * changes[own]) / most}%` : "0" } })),
      make("span", { class: "name" }, make("b", {}, `${layer}.${head}`), ` ${off ? "off" : pattern}`)));
    }
    grid.replaceChildren(...buttons);
    refresh(buttons[state.layer * data.heads + state.head]);
    buttons[focused]?.focus();
  }

  function choose(layer, head) {
    state.layer = layer;
    state.head = head;
    drawGrid();
    drawHead();
    askQuery();
    drawWithout(lastWithout);
    remember();
  }

  // --- one head

  function drawHead() {
    const pattern = data.patterns[state.layer * data.heads + state.head];
    title.textContent = `Layer ${state.layer}, head ${state.head}${pattern ? `: mostly ${pattern}` : ""}`;
    if (state.way === "arcs") drawArcs();
    else drawMatrix();
    tell(state.position, null);
  }

  function drawMatrix() {
    const places = visible(), n = places.length, names = places.map((place) => data.tokens[place].text);
    const map = heatMap({
      label: `Weights of layer ${state.layer}, head ${state.head}: rows attend to columns`, values: part(state.layer, state.head, places), names, across: names, columns: n, most: 1, room: drawing.clientWidth - 8, least: 9, widest: 46,
      describe: (i, j) => sentenceOf(places[i], places[j]),
      onPoint: (i, j) => tell(places[i], places[j]),
      onChoose: (i) => { state.position = places[i]; focusToken(); },
    });
    drawing.replaceChildren(map.element);
    const own = places.indexOf(state.position);
    if (own >= 0) map.point(own, places.indexOf(strongest(state.position)), false);
    map.element.addEventListener("pointerleave", () => tell(state.position, null));
  }

  const strongest = (i) => visible().reduce((best, j) => (weight(state.layer, state.head, i, j) > weight(state.layer, state.head, i, best) ? j : best));
  const sentenceOf = (i, j) => `${data.tokens[i].text} (${i}) attends to ${data.tokens[j].text} (${j}) with weight ${percent(weight(state.layer, state.head, i, j))}`;

  function tell(i, j) {
    if (j !== null) {
      told.textContent = `${sentenceOf(i, j)}.`;
      return;
    }
    const best = visible().map((place) => [weight(state.layer, state.head, i, place), place]).sort((a, b) => b[0] - a[0]).slice(0, 4);
    const hidden = state.special ? "" : ` The rest, ${percent(1 - visible().reduce((sum, place) => sum + weight(state.layer, state.head, i, place), 0))}, is on [CLS] and [SEP].`;
    told.textContent = `${data.tokens[i].text} (${i}) attends most to ${best.map(([share, place]) => `${data.tokens[place].text} ${percent(share)}`).join(", ")}.${hidden}`;
  }

  // Arcs above the sentence: from the query to what it attends to. Without pointing at a token, all of them.
  function drawArcs() {
    const places = visible();
    const widths = places.map((place) => 8.2 * data.tokens[place].text.length + 16);
    const starts = widths.map((_, at) => widths.slice(0, at).reduce((sum, one) => sum + one, 0));
    const middle = (at) => starts[at] + widths[at] / 2;
    const width = starts.at(-1) + widths.at(-1);
    const high = Math.min(240, 40 + width / 4);
    const lines = svg("g", {});
    const drawLines = (only) => lines.replaceChildren(...places.flatMap((i, a) => places.flatMap((j, b) => {
      const share = weight(state.layer, state.head, i, j);
      if ((only !== null && i !== only) || share < (only === null ? 3 * LEAST : LEAST)) return [];
      const rise = a === b ? 26 : Math.min(high - 12, 26 + Math.abs(middle(b) - middle(a)) * 0.42);
      const spread = a === b ? 12 : 0;
      return [svg("path", {
        class: "arc", d: `M${middle(a) - spread} ${high} C${middle(a) - spread} ${high - rise} ${middle(b) + spread} ${high - rise} ${middle(b) + spread} ${high}`,
        "stroke-width": (1 + 7 * share).toFixed(2), "stroke-opacity": (0.2 + 0.8 * share).toFixed(2),
      })];
    })));
    const words = places.map((place, at) => svg("text", {
      class: place === state.position ? "word on" : "word", x: middle(at), y: high + 22, "text-anchor": "middle", tabindex: 0, role: "button",
      "aria-label": `${data.tokens[place].text}: ${visible().map((j) => [weight(state.layer, state.head, place, j), j]).sort((x, y) => y[0] - x[0]).slice(0, 3).map(([share, j]) => `${data.tokens[j].text} ${percent(share)}`).join(", ")}`,
      on: {
        pointerenter: () => { drawLines(place); tell(place, null); }, focus: () => { drawLines(place); tell(place, null); },
        pointerleave: () => { drawLines(state.position); tell(state.position, null); },
        click: () => { state.position = place; focusToken(); },
        keydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); state.position = place; focusToken(); } },
      },
    }, data.tokens[place].text));
    drawLines(places.includes(state.position) ? state.position : null);
    const shrink = Math.max(0.85, Math.min(1, (drawing.clientWidth - 8) / width)); // a little smaller rather than cut off
    drawing.replaceChildren(svg("svg", { class: "arcs", width: width * shrink, height: (high + 34) * shrink, viewBox: `0 0 ${width} ${high + 34}`, role: "group", "aria-label": "The sentence with arcs to the tokens that the chosen one attends to" }, lines, words));
  }

  // --- one query against all keys, number by number

  async function focusToken() {
    draw();
    remember();
    const own = ++asked;
    await askQuery();
    if (own !== asked) return;
    if (!isWord(state.position)) {
      changes = saliency = null;
      drawGrid();
      const why = `${data.tokens[state.position].text} is not a word; press a word to see what its guess depends on.`;
      salient.replaceChildren(make("p", { class: "note" }, why));
      without.replaceChildren(make("p", { class: "note" }, why));
      return;
    }
    askWithout();
    const [one, other] = await Promise.all([
      view.ask("saliency", { text: state.text, position: state.position }, "saliency", view.shell.model, salient),
      view.ask("importance", { text: state.text, position: state.position }, "importance", view.shell.model, barsNote),
    ]);
    if (own !== asked) return;
    if (one) {
      saliency = one;
      drawSalient();
    }
    if (other) {
      changes = other.divergences;
      drawGrid();
    }
  }

  async function askQuery() {
    recipe.textContent = "";
    const answer = await view.ask("query", { text: state.text, layer: state.layer, head: state.head, position: state.position }, "query", view.shell.model, query);
    queryTitle.replaceChildren("One query against all keys: ", make("bdi", {}, data.tokens[state.position].text), make("span", { class: "note" }, ` layer ${state.layer}, head ${state.head}`));
    if (answer) drawQuery(answer);
  }

  function drawQuery(answer) {
    const i = state.position;
    const most = Math.max(1e-9, ...answer.weights), names = Object.keys(answer.products);
    const size = (value) => (value === null ? "hidden" : digits(value, 2));
    const body = data.tokens.map((token, j) => make("tr", { class: j === i ? "self" : "" },
      make("th", { scope: "row" }, make("bdi", {}, token.text)),
      make("td", {}, stripes(answer.query, answer.keys[j])),
      names.map((name) => make("td", {}, digits(answer.products[name][j], 2))), make("td", {}, size(answer.scores[j])),
      make("td", {}, digits(answer.powers[j], 3)),
      make("td", { class: "weight" }, make("span", { class: "track", "aria-hidden": "true" }, make("span", { class: "bar", style: { width: `${(100 * answer.weights[j]) / most}%` } })), make("span", {}, percent(answer.weights[j])))));
    recipe.replaceChildren("Each key is multiplied with the query, number by number",
      make("span", { class: "wide" }, " (the stripes: blue adds to the score, orange takes away)"),
      `. Their sum is ${names[0]}; `, names.length > 1 ? `${names.slice(1).join(" and ")} ${names.length > 2 ? "are" : "is"} added; ` : "",
      `${answer.scale} gives the score; exp and ÷ ${digits(answer.sum, 3)}, the sum of the column, the weight.`,
      answer.memory ? ` ${percent(answer.memory)} of the weight is on the memory.` : "");
    query.replaceChildren(make("table", {},
      make("thead", {}, make("tr", {}, ["key", `${answer.size} products q × k`, ...names, answer.scale, `exp(score − ${digits(answer.largest, 2)})`, "weight"].map((text) => make("th", { scope: "col" }, text)))),
      make("tbody", {}, body)));
  }

  function stripes(one, other) {
    const products = one.map((value, place) => value * other[place]);
    return svg("svg", { class: "stripes", width: 144, height: 16, viewBox: `0 0 ${one.length} 1`, preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("image", { width: one.length, height: 1, preserveAspectRatio: "none", "image-rendering": "pixelated", href: picture(products, 1, one.length, 6, true) }));
  }

  // --- what the guess depends on

  function drawSalient() {
    if (!saliency) return;
    const most = Math.max(1e-9, ...saliency.scores.map(Math.abs));
    const tokens = saliency.tokens.map((text, place) => {
      const score = saliency.scores[place];
      return make("span", {
        class: place === state.position ? "salient target" : "salient", role: "listitem",
        style: { background: colour(0.75 * score, most, true), color: inkOn(0.75 * score, most, true) },
      }, make("bdi", {}, text), make("small", {}, (score > 0 ? "+" : "") + digits(score, most < 0.1 ? 4 : 2)));
    });
    salient.replaceChildren(
      make("p", { class: "note" }, "Gradient × input of ", make("b", {}, saliency.of), ` = ${digits(saliency.value, 2)}: blue tokens support it, orange ones oppose it, to first order.`),
      make("div", { class: "saliency", role: "list" }, tokens));
  }

  let lastWithout = null;
  async function askWithout() {
    const answer = await view.ask("without", { text: state.text, position: state.position, off: [...state.off].sort((a, b) => a - b) }, "without", view.shell.model, without);
    if (answer) drawWithout(answer);
  }

  function drawWithout(answer) {
    lastWithout = answer;
    if (!answer) return;
    const own = state.layer * data.heads + state.head;
    const off = state.off.has(own);
    const flip = (number) => {
      if (state.off.has(number)) state.off.delete(number);
      else state.off.add(number);
      view.announce(state.off.has(number) ? "switched off" : "switched on");
      drawGrid();
      remember();
      askWithout();
    };
    const list = [...state.off].sort((a, b) => a - b).map((one) => `${Math.floor(one / data.heads)}.${one % data.heads}`);
    const most = Math.max(...answer.guesses.flatMap((one) => [one.before, one.after]));
    const name = data.tokens[state.position].text;
    without.replaceChildren(
      make("div", { class: "options" },
        make("button", { type: "button", class: off ? "strong" : "", "aria-pressed": String(off), on: { click: () => flip(own) } }, off ? `Switch head ${state.layer}.${state.head} on again` : `Switch head ${state.layer}.${state.head} off`),
        state.off.size ? make("button", { type: "button", class: "quiet", on: { click: () => { state.off.clear(); drawGrid(); remember(); askWithout(); } } }, "All on") : null),
      make("p", { class: "note" }, list.length
        ? `Guesses for ${name}, hidden, with all heads and without ${list.join(", ")}. The answer changes by ${digits(answer.divergence, 3)} nats (KL divergence).`
        : `Guesses for ${name}, hidden. Switch off the chosen head to see what changes; bars below the maps show which one matters most.`),
      state.off.size
        ? make("div", { class: "pair" },
          make("div", {}, make("h3", {}, "all heads"), bars(answer.guesses.map((one) => ({ name: one.word, share: one.before, mark: one.word === answer.own })), { label: "With all heads", most })),
          make("div", {}, make("h3", {}, "without"), bars(answer.guesses.map((one) => ({ name: one.word, share: one.after, mark: one.word === answer.own })), { label: "Without these heads", most })))
        : bars(answer.guesses.map((one) => ({ name: one.word, share: one.before, mark: one.word === answer.own })), { label: "With all heads", most }));
  }

  show(params);
  return { show };
}
