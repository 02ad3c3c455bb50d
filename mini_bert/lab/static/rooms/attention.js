// The attention room: a grid of heads, one head as matrix or arcs, one query number by number, saliency, heads switched off.

import { bars } from "../parts/bars.js";
import { colour, inkOn } from "../parts/colour.js";
import { digits, make, percent, roving, svg, unpack } from "../parts/dom.js";
import { places as readPlaces, whole } from "../parts/link.js";
import { heatMap, picture } from "../parts/matrix.js";
import { isWord, segmented, sentenceEditor, TEXT, toggle, tokenRow } from "../parts/sentence.js";

const LEAST = 0.03; // weight of an arc that is drawn
const THUMB = 76; // pixels

export default function open(view, params) {
  const state = { text: TEXT, layer: 0, head: 0, position: null, special: true, way: "matrix", off: new Set() };
  let data = null; // of the last sentence that has an answer; what is drawn and asked belongs to it
  let weights = null, changes = null, saliency = null, lastWithout = null, asked = 0;

  const editor = sentenceEditor(view, { value: state.text, onChange: (text) => { state.text = text; load(null); } });
  const row = tokenRow({ label: "Tokens; press one to make it the query", onPress: focusOn });
  const way = segmented({
    label: "Drawing", choices: [["matrix", "Matrix"], ["arcs", "Arcs"]], value: state.way,
    onChange: (value) => {
      state.way = value;
      if (data) drawHead();
      remember();
    },
  });
  const special = toggle({
    label: "Show [CLS] and [SEP]", value: true,
    onChange: (on) => {
      state.special = on;
      if (data) drawAll();
      remember();
    },
  });
  const grid = make("div", { class: "heads", role: "group", "aria-label": "All heads: rows are layers, columns are heads" });
  const { refresh } = roving(grid, "button", () => data?.heads ?? 1);
  const barsNote = make("div", {}, make("p", { class: "note" },
    "The bar below a map shows how much the guess of the chosen word changes without this head."));
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
    state.way = params.way === "arcs" ? "arcs" : "matrix";
    state.off = new Set(readPlaces(params.off));
    state.special = params.special !== "no";
    way.set(state.way);
    special.set(state.special);
    if (editor.value !== state.text) editor.set(state.text);
    load(whole(params.position, 0, 999, null));
  }

  const remember = () => view.link({
    text: state.text, layer: state.layer, head: state.head, position: state.position ?? "",
    way: state.way === "arcs" ? "arcs" : "", off: [...state.off].join(","), special: state.special ? "" : "no",
  });

  // wanted: the position of the query; null: the one that the server proposes
  async function load(wanted) {
    const { text } = state;
    const answer = await view.ask("maps", { text });
    if (!answer) return;
    data = { ...answer, text };
    weights = unpack(data.weights, Uint16Array);
    state.layer = Math.min(state.layer, data.layers - 1);
    state.head = Math.min(state.head, data.heads - 1);
    state.off = new Set([...state.off].filter((one) => one < data.layers * data.heads));
    state.position = wanted === null || wanted >= data.tokens.length ? data.position : wanted;
    changes = saliency = lastWithout = null;
    limits.textContent = `Attention is not explanation. ${data.limits}`;
    drawAll();
    focusOn(state.position);
  }

  const T = () => data.tokens.length;
  const weight = (layer, head, i, j) => weights[((layer * data.heads + head) * T() + i) * T() + j] / 65535;
  const share = (i, j) => weight(state.layer, state.head, i, j); // of the chosen head
  const visible = () => data.tokens.flatMap((token, place) => (state.special || isWord(token) ? [place] : []));
  const strongest = (i) => visible().map((j) => [share(i, j), j]).sort((a, b) => b[0] - a[0]);
  const named = (pairs) => pairs.map(([own, place]) => `${data.tokens[place].text} ${percent(own)}`).join(", ");

  function drawAll() {
    drawGrid();
    draw();
    drawSalient();
  }

  function draw() {
    row.show(data.tokens, { current: state.position });
    drawHead();
  }

  // --- the grid of heads

  // Roots of weights, so that small ones can be seen
  function part(layer, head, places) {
    return Float32Array.from(places.flatMap((i) => places.map((j) => Math.sqrt(weight(layer, head, i, j)))));
  }

  function drawGrid() {
    const places = visible(), most = Math.max(1e-9, ...(changes ?? [1]));
    const focused = [...grid.children].indexOf(document.activeElement); // the keyboard stays where it is
    grid.style.setProperty("--heads", data.heads);
    const buttons = Array.from({ length: data.layers * data.heads }, (_, own) => {
      const layer = Math.floor(own / data.heads), head = own % data.heads;
      return thumbnail({
        layer, head, pattern: data.patterns[own], values: part(layer, head, places), size: places.length,
        chosen: layer === state.layer && head === state.head, off: state.off.has(own),
        change: changes ? changes[own] / most : 0, act: () => choose(layer, head),
      });
    });
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
    drawWithout();
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
    const places = visible(), names = places.map((place) => data.tokens[place].text);
    const map = heatMap({
      label: `Weights of layer ${state.layer}, head ${state.head}: rows attend to columns`,
      values: part(state.layer, state.head, places), names, across: names, columns: places.length, most: 1,
      room: drawing.clientWidth - 8, least: 9, widest: 46,
      onPoint: (i, j) => tell(places[i], places[j]), onChoose: (i) => focusOn(places[i]),
    });
    drawing.replaceChildren(map.element);
    const own = places.indexOf(state.position);
    if (own >= 0) map.point(own, places.indexOf(strongest(state.position)[0][1]), false);
    map.element.addEventListener("pointerleave", () => tell(state.position, null));
  }

  function tell(i, j) {
    const from = `${data.tokens[i].text} (${i})`;
    if (j !== null) {
      told.textContent = `${from} attends to ${data.tokens[j].text} (${j}) with weight ${percent(share(i, j))}.`;
      return;
    }
    const all = strongest(i), rest = 1 - all.reduce((sum, [own]) => sum + own, 0);
    const hidden = state.special ? "" : ` The rest, ${percent(rest)}, is on [CLS] and [SEP].`;
    told.textContent = `${from} attends most to ${named(all.slice(0, 4))}.${hidden}`;
  }

  function drawArcs() {
    drawing.replaceChildren(arcs({
      places: visible(), names: data.tokens.map((token) => token.text), chosen: state.position, share, room: drawing.clientWidth - 8,
      describe: (place) => `${data.tokens[place].text}: ${named(strongest(place).slice(0, 3))}`,
      onPoint: (place) => tell(place ?? state.position, null), onChoose: focusOn,
    }));
  }

  // --- one query against all keys, and what the guess of a word depends on

  async function focusOn(position) {
    state.position = position;
    draw();
    remember();
    const own = ++asked, token = data.tokens[position];
    await askQuery();
    if (own !== asked) return;
    if (!isWord(token)) {
      changes = saliency = lastWithout = null;
      drawGrid();
      for (const place of [salient, without]) {
        place.replaceChildren(make("p", { class: "note" }, `${token.text} is not a word; press a word to see what its guess depends on.`));
      }
      return;
    }
    lastWithout = null;
    askWithout();
    const request = { text: data.text, position };
    const [one, other] = await Promise.all([
      view.ask("saliency", request, { into: salient }), view.ask("importance", request, { into: barsNote }),
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
    const { layer, head, position } = state;
    recipe.textContent = "";
    const answer = await view.ask("query", { text: data.text, layer, head, position }, { into: query });
    queryTitle.replaceChildren("One query against all keys: ", make("bdi", {}, data.tokens[state.position].text),
      make("span", { class: "note" }, ` layer ${state.layer}, head ${state.head}`));
    if (!answer) return;
    recipe.replaceChildren(...recipeOf(answer));
    query.replaceChildren(queryTable(answer, data.tokens, position));
  }

  function drawSalient() {
    if (saliency) salient.replaceChildren(...salientTokens(saliency, state.position));
  }

  // --- heads switched off

  async function askWithout() {
    const request = { text: data.text, position: state.position, off: [...state.off].sort((a, b) => a - b) };
    const answer = await view.ask("without", request, { into: without });
    if (!answer) return;
    lastWithout = answer;
    drawWithout();
  }

  function changeOff(act) {
    act();
    drawGrid();
    remember();
    askWithout();
  }

  function drawWithout() {
    if (!lastWithout) return;
    const own = state.layer * data.heads + state.head, off = state.off.has(own), name = `head ${state.layer}.${state.head}`;
    const flip = () => {
      if (off) state.off.delete(own);
      else state.off.add(own);
      view.announce(off ? "switched on" : "switched off");
    };
    const list = [...state.off].sort((a, b) => a - b).map((one) => `${Math.floor(one / data.heads)}.${one % data.heads}`);
    without.replaceChildren(
      make("div", { class: "options" },
        make("button", { type: "button", class: off ? "strong" : "", "aria-pressed": String(off), on: { click: () => changeOff(flip) } },
          off ? `Switch ${name} on again` : `Switch ${name} off`),
        list.length ? make("button", { type: "button", class: "quiet", on: { click: () => changeOff(() => state.off.clear()) } }, "All on") : null),
      ...comparison(lastWithout, data.tokens[state.position].text, list));
  }

  show(params);
  return { show };
}

// --- parts of the drawing

function thumbnail({ layer, head, pattern, values, size, chosen, off, change, act }) {
  const name = `${layer}.${head}`, said = off ? "off" : pattern;
  const long = `layer ${layer}, head ${head}${pattern ? `, mostly ${pattern}` : ""}${off ? ", switched off" : ""}`;
  return make("button", {
    type: "button", "aria-pressed": String(chosen), class: off ? "off" : "", tabindex: chosen ? 0 : -1,
    "aria-label": `${`${name} ${said}`.trim()}: ${long}`, on: { click: act },
  },
  svg("svg", { viewBox: `0 0 ${size} ${size}`, width: THUMB, height: THUMB, "aria-hidden": "true" },
    svg("image", {
      width: size, height: size, preserveAspectRatio: "none", "image-rendering": "pixelated", href: picture(values, size, size, 1, false),
    })),
  make("span", { class: "meter", "aria-hidden": "true" }, make("span", { style: { width: `${100 * change}%` } })),
  make("span", { class: "name" }, make("b", {}, name), ` ${said}`));
}

// Arcs above the sentence: from the chosen token, or one that is pointed at, to what it attends to; from all if it is hidden
function arcs({ places, names, chosen, share, room, describe, onPoint, onChoose }) {
  const widths = places.map((place) => 8.2 * names[place].length + 16);
  const starts = widths.map((_, at) => widths.slice(0, at).reduce((sum, one) => sum + one, 0));
  const middle = (at) => starts[at] + widths[at] / 2;
  const width = starts.at(-1) + widths.at(-1), high = Math.min(240, 40 + width / 4);
  const lines = svg("g", {});

  function arc(a, b, own) {
    const rise = a === b ? 26 : Math.min(high - 12, 26 + Math.abs(middle(b) - middle(a)) * 0.42);
    const from = middle(a) - (a === b ? 12 : 0), to = middle(b) + (a === b ? 12 : 0);
    return svg("path", {
      class: "arc", d: `M${from} ${high} C${from} ${high - rise} ${to} ${high - rise} ${to} ${high}`,
      "stroke-width": (1 + 7 * own).toFixed(2), "stroke-opacity": (0.2 + 0.8 * own).toFixed(2),
    });
  }
  function drawLines(only) {
    const least = only === null ? 3 * LEAST : LEAST;
    lines.replaceChildren(...places.flatMap((i, a) => (only !== null && i !== only ? []
      : places.flatMap((j, b) => (share(i, j) < least ? [] : [arc(a, b, share(i, j))])))));
  }
  const usual = places.includes(chosen) ? chosen : null;
  const point = (place) => {
    drawLines(place ?? usual);
    onPoint(place);
  };
  const words = places.map((place, at) => svg("text", {
    class: place === chosen ? "word on" : "word", x: middle(at), y: high + 22, "text-anchor": "middle", tabindex: 0, role: "button",
    "aria-label": describe(place),
    on: {
      pointerenter: () => point(place), focus: () => point(place), pointerleave: () => point(null),
      click: () => onChoose(place),
      keydown: (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        onChoose(place);
      },
    },
  }, names[place]));
  drawLines(usual);
  const shrink = Math.max(0.85, Math.min(1, room / width)); // a little smaller rather than cut off
  return svg("svg", {
    class: "arcs", width: width * shrink, height: (high + 34) * shrink, viewBox: `0 0 ${width} ${high + 34}`, role: "group",
    "aria-label": "The sentence with arcs to the tokens that the chosen one attends to",
  }, lines, words);
}

// How a weight is computed, in a sentence
function recipeOf(answer) {
  const [first, ...more] = Object.keys(answer.products);
  return ["Each key is multiplied with the query, number by number",
    make("span", { class: "wide" }, " (the stripes: blue adds to the score, orange takes away)"),
    `. Their sum is ${first}; `, more.length ? `${more.join(" and ")} ${more.length > 1 ? "are" : "is"} added; ` : "",
    `${answer.scale} gives the score; exp and ÷ ${digits(answer.sum, 3)}, the sum of the column, the weight.`,
    answer.memory ? ` ${percent(answer.memory)} of the weight is on the memory.` : ""];
}

function queryTable(answer, tokens, position) {
  const most = Math.max(1e-9, ...answer.weights), names = Object.keys(answer.products);
  const titles = ["key", `${answer.size} products q × k`, ...names, answer.scale, `exp(score − ${digits(answer.largest, 2)})`, "weight"];
  return make("table", {},
    make("thead", {}, make("tr", {}, titles.map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, tokens.map((token, key) => make("tr", { class: key === position ? "self" : "" },
      make("th", { scope: "row" }, make("bdi", {}, token.text)),
      make("td", {}, stripes(answer.query, answer.keys[key])),
      names.map((name) => make("td", {}, digits(answer.products[name][key], 2))),
      make("td", {}, answer.scores[key] === null ? "hidden" : digits(answer.scores[key], 2)),
      make("td", {}, digits(answer.powers[key], 3)),
      make("td", { class: "weight" },
        make("span", { class: "track", "aria-hidden": "true" },
          make("span", { class: "bar", style: { width: `${(100 * answer.weights[key]) / most}%` } })),
        make("span", {}, percent(answer.weights[key])))))));
}

function stripes(one, other) {
  const products = one.map((value, place) => value * other[place]);
  return svg("svg", {
    class: "stripes", width: 144, height: 16, viewBox: `0 0 ${one.length} 1`, preserveAspectRatio: "none", "aria-hidden": "true",
  }, svg("image", {
    width: one.length, height: 1, preserveAspectRatio: "none", "image-rendering": "pixelated", href: picture(products, 1, one.length, 6, true),
  }));
}

function salientTokens(saliency, position) {
  const most = Math.max(1e-9, ...saliency.scores.map(Math.abs));
  const tokens = saliency.tokens.map((text, place) => {
    const score = saliency.scores[place];
    return make("span", {
      class: place === position ? "salient target" : "salient", role: "listitem",
      style: { background: colour(0.75 * score, most, true), color: inkOn(0.75 * score, most, true) },
    }, make("bdi", {}, text), make("small", {}, (score > 0 ? "+" : "") + digits(score, most < 0.1 ? 4 : 2)));
  });
  return [
    make("p", { class: "note" }, "Gradient × input of ", make("b", {}, saliency.of),
      ` = ${digits(saliency.value, 2)}: blue tokens support it, orange ones oppose it, to first order.`),
    make("div", { class: "saliency", role: "list" }, tokens)];
}

// The guesses with all heads and without some. list: the names of these
function comparison(answer, name, list) {
  const most = Math.max(...answer.guesses.flatMap((one) => [one.before, one.after]));
  const side = (key, label) => bars(
    answer.guesses.map((one) => ({ name: one.word, share: one[key], mark: one.word === answer.own })), { label, most });
  if (!list.length) {
    return [make("p", { class: "note" },
      `Guesses for ${name}, hidden. Switch off the chosen head to see what changes; bars below the maps show which one matters most.`),
    side("before", "With all heads")];
  }
  return [
    make("p", { class: "note" }, `Guesses for ${name}, hidden, with all heads and without ${list.join(", ")}. `,
      `The answer changes by ${digits(answer.divergence, 3)} nats (KL divergence: 0 if all probabilities stay the same).`),
    make("div", { class: "pair" },
      make("div", {}, make("h3", {}, "all heads"), side("before", "With all heads")),
      make("div", {}, make("h3", {}, "without"), side("after", "Without these heads")))];
}
