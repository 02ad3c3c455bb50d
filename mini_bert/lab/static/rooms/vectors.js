// The vectors room: what a probe reads from each layer, neighbours in the table of tokens, sentences and words on a plane.

import { bars } from "../parts/bars.js";
import { digits, make, percent, roving, svg, unique } from "../parts/dom.js";
import { whole } from "../parts/link.js";
import { segmented, sentenceEditor, tokenRow } from "../parts/sentence.js";
import { tip } from "../parts/tooltip.js";

const TEXT = "The old judge should judge the young painters.";
const EXAMPLES = [TEXT, "She will show the new show.", "The cat sat on the mat because it was tired.", "They work hard, but the work is hard."];
const LINES = ["The dog slept on the floor.", "A cat was lying on the bed.", "The horse ran through the field.", "He was born in London in 1901.",
  "She died in Paris in 1956.", "They lived in New York for years.", "The army crossed the river.", "The war ended in May.",
  "The soldiers attacked the town.",
  "She opened the door slowly.", "He looked out of the window.", "They walked into the room."].join("\n");
const OF = [["sentences", "Sentences"], ["words", "Words"]];
const PAUSE = 250, HIGH = 420, EDGE = 26; // of the plane, in pixels
const TAGS = {
  ADJ: "adjective", ADP: "preposition", ADV: "adverb", AUX: "auxiliary", CCONJ: "conjunction", DET: "determiner", INTJ: "interjection", NOUN: "noun",
  NUM: "number", PART: "particle", PRON: "pronoun", PROPN: "name", PUNCT: "punctuation", SCONJ: "subordinating conjunction", VERB: "verb",
};

export default function open(view, params) {
  const state = { text: TEXT, position: 3, of: "sentences", layer: null, lines: LINES, point: null };
  let tokens = [], answer = null;

  const editor = sentenceEditor(view, {
    value: state.text, examples: EXAMPLES,
    onChange: (text) => { state.text = text; state.position = 1; state.point = null; refresh(); },
  });
  const probed = make("div", { class: "probe" });
  const row = tokenRow({
    label: "Tokens; press one to see its neighbours", onPress: (place) => { state.position = place; link(); draw(); near(); },
  });
  const neighbours = make("div", {});

  const id = unique("lines"), later = view.timer();
  const lines = make("textarea", {
    id, class: "pasted", maxlength: 1800, spellcheck: "false",
    on: { input: () => later(() => { state.lines = lines.value; state.point = null; plane(); }, PAUSE) },
  });
  lines.value = state.lines;
  const of = segmented({
    label: "What the points are", choices: OF, value: state.of, onChange: (value) => { state.of = value; state.point = null; plane(); },
  });
  const layers = make("select", { "aria-label": "Layer", on: { change: () => { state.layer = Number(layers.value); plane(); } } });
  const picture = make("div", { class: "plane" });
  const close = make("div", { "aria-live": "polite" });

  view.root.append(
    editor.element, view.error,
    make("section", {}, make("h2", {}, "What a probe reads from each layer"), probed),
    make("section", { class: "panel" }, make("h2", {}, "Nearest neighbours in the vocabulary"), row.element, neighbours),
    make("section", {}, make("h2", {}, "On a plane, with other sentences"),
      make("div", { class: "learning" },
        make("label", { for: id, class: "label" }, "Other sentences, one in each line"), lines,
        make("div", { class: "options" }, of.element,
          make("div", { class: "option" }, make("span", { class: "label" }, "Vectors of"), layers)),
        make("div", { class: "planes" }, picture, close))));

  const link = () => view.link({
    text: state.text, position: state.position, of: state.of, layer: state.layer, lines: state.lines === LINES ? "" : state.lines,
  });

  function show(params, keep = false) {
    if (keep) return;
    state.text = params.text ?? TEXT;
    state.position = whole(params.position, 0, 127, state.text === TEXT ? 3 : 1);
    state.of = params.of === "words" ? "words" : "sentences";
    state.layer = whole(params.layer, 0, 99, null);
    state.lines = params.lines ?? LINES;
    if (editor.value !== state.text) editor.set(state.text);
    if (lines.value !== state.lines) lines.value = state.lines;
    of.set(state.of);
    refresh();
  }

  async function refresh() {
    link();
    plane();
    const found = await view.ask("probe", { text: state.text });
    if (!found) return;
    tokens = found.tokens;
    state.position = Math.min(state.position, tokens.length - 1);
    draw();
    near();
    tags(found);
  }

  // --- the probe

  function tags(found) {
    if (found.why) {
      probed.replaceChildren(make("p", {}, found.why));
      return;
    }
    const differ = found.words.filter((_, place) => new Set(found.layers.map((layer) => layer.tags[place][0][0])).size > 1);
    const [, word] = Object.entries(found.baselines)[1];
    const random = Math.max(...found.layers.map((layer) => layer.random));
    probed.replaceChildren(
      make("p", { class: "note" }, "A probe is a linear classifier. It sees the vector of one word in one layer and names its part of speech."),
      make("div", { class: "scroll" }, tagTable(found)),
      make("p", {}, differ.length
        ? ["The layers disagree on ", ...listed(differ), ". The embeddings have the word alone; each layer adds context."]
        : "All layers agree. Try a sentence in which one word occurs as a verb and as a noun."),
      make("p", { class: "note" }, `Trained on ${found.sentences.toLocaleString("en")} sentences of a small grammar, so other text is harder `,
        `than the numbers on the right say. There, the most frequent tag of each word is right for ${percent(word)}, `,
        `and a probe of an untrained model for ${percent(random)}. A probe shows what can be read from a layer, not what the model uses.`));
  }

  // The arrow keys move between its cells, each of which says more.
  function tagTable(found) {
    const last = found.layers.at(-1);
    const cell = ([best, next], place) => tip(
      make("td", { class: last.tags[place][0][0] === best[0] ? "tag" : "tag other" }, best[0], make("small", {}, percent(best[1]))),
      `${TAGS[best[0]] ?? best[0]}, ${percent(best[1])}; then ${TAGS[next[0]] ?? next[0]}, ${percent(next[1])}`);
    const table = make("table", {},
      make("thead", {}, make("tr", {}, make("td", {}), found.words.map((word) => make("th", { scope: "col" }, make("bdi", {}, word))),
        make("th", { scope: "col", class: "right" }, "right in all"))),
      make("tbody", {}, found.layers.toReversed().map((layer) => make("tr", {},
        make("th", { scope: "row" }, layer.name), layer.tags.map(cell), make("td", { class: "right" }, percent(layer.accuracy))))));
    roving(table, ".tag", () => found.words.length).refresh();
    return table;
  }
  const listed = (names) => names.slice(0, 6).flatMap((name, place) => [place ? ", " : "", make("b", {}, make("bdi", {}, name))]);

  // --- neighbours in the table

  function draw() {
    row.show(tokens, { current: state.position });
  }

  async function near() {
    const found = await view.ask("neighbours", { text: state.text, position: state.position });
    if (!found) return;
    neighbours.replaceChildren(
      make("h3", {}, "Rows of the table of tokens with the highest cosine to “", make("bdi", {}, found.of), "”"),
      bars(found.near.map((one) => ({ name: one.text, share: Math.max(0, one.cosine), note: digits(one.cosine, 2) })),
        { label: "Neighbours", most: 1 }),
      make("p", { class: "note" }, "This is before any layer: the same row in every sentence."));
  }

  // --- the plane

  async function plane() {
    link();
    const request = { text: [state.text.replaceAll("\n", " "), state.lines].join("\n").slice(0, 2000), of: state.of };
    if (state.layer !== null) request.layer = state.layer;
    const found = await view.ask("plane", request);
    if (!found) return;
    answer = found;
    state.point = Math.min(state.point ?? longest(found.points), found.points.length - 1);
    state.layer ??= found.layers.length - 1;
    if (layers.options.length !== found.layers.length) {
      layers.replaceChildren(...found.layers.map((name, number) => make("option", { value: number }, name)));
    }
    layers.value = state.layer;
    link();
    paint();
  }

  // The longest text of this sentence: a word that says more than “the”
  const longest = (points) => points.reduce(
    (best, one, number) => (one.group === 0 && one.text.length > points[best].text.length ? number : best), 0);

  let wide = 640;
  view.onResize(picture, () => {
    if (answer && Math.abs(picture.clientWidth - wide) > 8) paint();
  });

  function paint() {
    const { points, shares } = answer, chosen = points[state.point];
    const focused = picture.contains(document.activeElement);
    wide = Math.max(280, picture.clientWidth);
    picture.replaceChildren(planePicture(), make("p", { class: "note" },
      `The first two principal components, the directions in which the points differ most: ${percent(shares[0])} and ${percent(shares[1])} `,
      "of the variance. What is near here may be far in the other directions; cosines use all. ",
      "Where there is no room for a name, point at it."));
    if (focused) picture.querySelector(".dot.chosen").focus();
    close.replaceChildren(
      make("h3", {}, "Nearest to “", make("bdi", {}, short(chosen.text, 60)), "”"),
      bars(chosen.near.map(([other, cosine]) => ({
        name: context(points[other]), share: Math.max(0, cosine), note: digits(cosine, 3), act: () => choose(other), hint: "Choose this point",
      })), { label: "Nearest points", most: 1 }),
      make("p", { class: "note" }, `Cosines. Between two of all points it is ${digits(answer.mean, 2)} on average.`));
  }

  function planePicture() {
    const { points } = answer;
    const reach = (axis) => [Math.min(...points.map((one) => one[axis])), Math.max(...points.map((one) => one[axis]))];
    const [left, right] = reach("x"), [low, high] = reach("y");
    const at = points.map((one) => ({
      x: EDGE + (wide - 2 * EDGE) * ((one.x - left) / (right - left || 1)),
      y: HIGH - EDGE - (HIGH - 2 * EDGE) * ((one.y - low) / (high - low || 1)),
    }));
    const near = new Set(points[state.point].near.slice(0, 3).map(([other]) => other));
    const names = labelled(points.map((one) => short(one.text)), at, wide, (number) => {
      if (number === state.point) return 0;
      return near.has(number) ? 1 : 2 + Math.min(1, points[number].group);
    });
    const dots = points.map((one, number) => {
      const kinds = [one.group === 0 && "own", number === state.point && "chosen", near.has(number) && "near", !names.has(number) && "crowded"];
      const label = names.get(number) ?? place(at[number], short(one.text).length, wide)[0];
      return svg("g", {
        class: ["dot", ...kinds.filter(Boolean)].join(" "), role: "button", tabindex: -1, "data-number": number, "aria-label": one.text,
        "aria-pressed": String(number === state.point),
        on: {
          click: () => choose(number),
          keydown: (event) => {
            if (event.key !== "Enter" && event.key !== " ") return;
            event.preventDefault();
            choose(number);
          },
        },
      }, svg("circle", { cx: at[number].x, cy: at[number].y, r: 6 }),
      svg("text", { x: label.x, y: label.y, "text-anchor": label.anchor, "dominant-baseline": "central" }, short(one.text)));
    });
    const drawn = svg("svg", {
      class: "dots", viewBox: `0 0 ${wide} ${HIGH}`, width: wide, height: HIGH, role: "group",
      "aria-label": "Points on a plane; use the arrow keys to move between them",
    }, svg("rect", { class: "frame", x: 1, y: 1, width: wide - 2, height: HIGH - 2, rx: 10 }), dots,
    svg("g", { class: "names", "aria-hidden": "true" }, [state.point, ...near].filter((number) => names.has(number)).map((number) => {
      const name = dots[number].lastChild.cloneNode(true); // again, on top of all points
      name.setAttribute("class", number === state.point ? "chosen" : "");
      return name;
    })));
    roving(drawn, ".dot").refresh(dots[state.point]);
    return drawn;
  }

  const short = (text, most = 26) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  const context = (one) => (state.of === "words" ? `${one.text} (sentence ${one.group + 1})` : one.text);

  function choose(number) {
    state.point = number;
    paint();
    view.announce(`${answer.points[number].text} is chosen`);
  }

  show(params);
  return { show };
}

// --- names on the plane

const LETTER = 6.8, LINE = 14; // pixels

// Where the name of a point may be, the best place first: right, left, below, above
function place({ x, y }, letters, wide) {
  const long = LETTER * letters;
  const middle = Math.max(4, Math.min(wide - 4 - long, x - long / 2)); // the left end of a name below or above
  const sides = [
    { x: x + 10, y, anchor: "start", from: x + 8, to: x + 10 + long }, { x: x - 10, y, anchor: "end", from: x - 10 - long, to: x - 8 },
    ...[15, -15].map((by) => ({ x: middle, y: y + by, anchor: "start", from: middle, to: middle + long })),
  ];
  const inside = sides.filter((one) => one.from > 2 && one.to < wide - 2 && one.y > LINE / 2 && one.y < HIGH - LINE / 2);
  return inside.length ? inside : sides.slice(0, 1);
}

// Places of names that cover no point and no other name, those with the lowest rank first: a map from number to place
function labelled(texts, at, wide, rank) {
  const kept = new Map();
  const order = texts.map((_, number) => number).sort((a, b) => rank(a) - rank(b));
  for (const number of order) {
    const clear = (box) => [...kept.values()].every((one) => one.to < box.from || box.to < one.from || Math.abs(one.y - box.y) >= LINE);
    const bare = (box) => at.every(({ x, y }, other) => other === number || x < box.from - 6 || x > box.to + 6 || Math.abs(y - box.y) > 11);
    const boxes = place(at[number], texts[number].length, wide).filter(clear);
    const best = boxes.find(bare) ?? (rank(number) < 2 ? boxes[0] : undefined); // the chosen point and its neighbours at any rate
    if (best) kept.set(number, best);
  }
  return kept;
}
