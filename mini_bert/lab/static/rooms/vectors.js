// The vectors room: what a probe reads from each layer, neighbours in the table of tokens, sentences and words on a plane.

import { bars } from "../parts/bars.js";
import { digits, make, percent, roving, svg, unique } from "../parts/dom.js";
import { whole } from "../parts/link.js";
import { segmented, sentenceEditor, tokenRow } from "../parts/sentence.js";
import { tip } from "../parts/tooltip.js";

const TEXT = "The old judge should judge the young painters.";
const EXAMPLES = [TEXT, "She will show the new show.", "The cat sat on the mat because it was tired.", "They work hard, but the work is hard."];
const LINES = ["The dog slept on the floor.", "A cat was lying on the bed.", "The horse ran through the field.", "He was born in London in 1901.",
  "She died in Paris in 1956.", "They lived in New York for years.", "The army crossed the river.", "The war ended in May.", "The soldiers attacked the town.",
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

  const editor = sentenceEditor({ value: state.text, examples: EXAMPLES, onChange: (text) => { state.text = text; state.position = 1; state.point = null; refresh(); } });
  const probed = make("div", { class: "probe" });
  const row = tokenRow({ label: "Tokens; press one to see its neighbours", onPress: (place) => { state.position = place; link(); draw(); near(); } });
  const neighbours = make("div", {});

  const id = unique("lines");
  let timer = 0;
  const lines = make("textarea", {
    id, class: "pasted", maxlength: 1800, spellcheck: "false",
    on: { input: () => { clearTimeout(timer); timer = setTimeout(() => { state.lines = lines.value; state.point = null; plane(); }, PAUSE); } },
  });
  lines.value = state.lines;
  const of = segmented({ label: "What the points are", choices: OF, value: state.of, onChange: (value) => { state.of = value; state.point = null; plane(); } });
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
        make("div", { class: "options" }, of.element, make("div", { class: "option" }, make("span", { class: "label" }, "Vectors of"), layers)),
        make("div", { class: "planes" }, picture, close))));

  const link = () => view.link({ text: state.text, position: state.position, of: state.of, layer: state.layer });

  function show(params, keep = false) {
    if (keep) return;
    state.text = params.text ?? TEXT;
    state.position = whole(params.position, 0, 127, state.text === TEXT ? 3 : 1);
    state.of = params.of === "words" ? "words" : "sentences";
    state.layer = whole(params.layer, 0, 99, null);
    if (editor.value !== state.text) editor.set(state.text);
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
    const last = found.layers.length - 1;
    const table = make("table", {},
      make("thead", {}, make("tr", {}, make("td", {}), found.words.map((word) => make("th", { scope: "col" }, make("bdi", {}, word))), make("th", { scope: "col", class: "right" }, "right in all"))),
      make("tbody", {}, found.layers.map((layer, number) => [layer, number]).reverse().map(([layer, number]) => make("tr", {},
        make("th", { scope: "row" }, layer.name),
        layer.tags.map(([best, next], place) => {
          const same = number === last || found.layers[last].tags[place][0][0] === best[0];
          return tip(make("td", { class: same ? "" : "other", tabindex: -1 }, best[0], make("small", {}, percent(best[1]))),
            `${TAGS[best[0]] ?? best[0]}, ${percent(best[1])}; then ${TAGS[next[0]] ?? next[0]}, ${percent(next[1])}`);
        }),
        make("td", { class: "right" }, percent(layer.accuracy))))));
    const differ = found.words.filter((_, place) => new Set(found.layers.map((layer) => layer.tags[place][0][0])).size > 1);
    const [, word] = Object.entries(found.baselines)[1];
    probed.replaceChildren(
      make("p", { class: "note" }, "A probe is a linear classifier. It sees the vector of one word in one layer and names its part of speech."),
      make("div", { class: "scroll" }, table),
      make("p", {}, differ.length
        ? ["The layers disagree on ", ...listed(differ), ". The embeddings have the word alone; each layer adds context."]
        : "All layers agree. Try a sentence in which one word occurs as a verb and as a noun."),
      make("p", { class: "note" }, `Trained on ${found.sentences.toLocaleString("en")} sentences of a small grammar, so other text is harder than the numbers on the right say. `,
        `There, the most frequent tag of each word is right for ${percent(word)}, and a probe of an untrained model for ${percent(Math.max(...found.layers.map((layer) => layer.random)))}. `,
        "A probe shows what can be read from a layer, not what the model uses."));
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
      bars(found.near.map((one) => ({ name: one.text, share: Math.max(0, one.cosine), note: digits(one.cosine, 2) })), { label: "Neighbours", most: 1 }),
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
    if (layers.options.length !== found.layers.length) layers.replaceChildren(...found.layers.map((name, number) => make("option", { value: number }, name)));
    layers.value = state.layer;
    link();
    paint();
  }

  // The longest text of this sentence: a word that says more than “the”
  const longest = (points) => points.reduce((best, one, number) => (one.group === 0 && one.text.length > points[best].text.length ? number : best), 0);

  let WIDE = 640;
  new ResizeObserver(() => {
    if (answer && Math.abs(picture.clientWidth - WIDE) > 8) paint();
  }).observe(picture);

  function paint() {
    const { points, shares } = answer;
    WIDE = Math.max(300, picture.clientWidth);
    const reach = (axis) => [Math.min(...points.map((one) => one[axis])), Math.max(...points.map((one) => one[axis]))];
    const [left, right] = reach("x"), [low, high] = reach("y");
    const x = (value) => EDGE + (WIDE - 2 * EDGE) * ((value - left) / (right - left || 1));
    const y = (value) => HIGH - EDGE - (HIGH - 2 * EDGE) * ((value - low) / (high - low || 1));
    const near = new Set(points[state.point].near.slice(0, 3).map(([other]) => other));
    const fits = labelled(points, near, x, y);
    const dots = points.map((one, number) => {
      const kind = [one.group === 0 && "own", number === state.point && "chosen", near.has(number) && "near", !fits.has(number) && "crowded"].filter(Boolean).join(" ");
      const end = x(one.x) > WIDE * 0.62;
      return svg("g", {
        class: `dot ${kind}`, role: "button", tabindex: -1, "data-number": number, "aria-label": one.text, "aria-pressed": String(number === state.point),
        on: { click: () => choose(number), keydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(number); } } },
      }, svg("circle", { cx: x(one.x), cy: y(one.y), r: 6 }),
      svg("text", { x: x(one.x) + (end ? -10 : 10), y: y(one.y), "text-anchor": end ? "end" : "start", "dominant-baseline": "central" }, short(one.text)));
    });
    const focused = picture.contains(document.activeElement);
    const drawn = svg("svg", { class: "dots", viewBox: `0 0 ${WIDE} ${HIGH}`, width: WIDE, height: HIGH, role: "group", "aria-label": "Points on a plane; use the arrow keys to move between them" },
      svg("rect", { class: "frame", x: 1, y: 1, width: WIDE - 2, height: HIGH - 2, rx: 10 }), dots,
      svg("g", { class: "names", "aria-hidden": "true" }, [state.point, ...near].filter((number) => fits.has(number)).map((number) => {
        const name = dots[number].lastChild.cloneNode(true); // again, on top of all points
        name.setAttribute("class", number === state.point ? "chosen" : "");
        return name;
      })));
    picture.replaceChildren(drawn, make("p", { class: "note" }, `The first two principal components: ${percent(shares[0])} and ${percent(shares[1])} of the variance. What is near here may be far in the other directions; cosines use all.`));
    roving(drawn, ".dot").refresh(dots[state.point]);
    if (focused) dots[state.point].focus();
    const chosen = points[state.point];
    close.replaceChildren(
      make("h3", {}, "Nearest to “", make("bdi", {}, short(chosen.text, 60)), "”"),
      bars(chosen.near.map(([other, cosine]) => ({ name: context(points[other]), share: Math.max(0, cosine), note: digits(cosine, 3), act: () => choose(other), hint: "Choose this point" })), { label: "Nearest points", most: 1 }),
      make("p", { class: "note" }, `Cosines. Between two of all points it is ${digits(answer.mean, 2)} on average.`));
  }
  // The points whose names fit without covering others: the chosen one first, then its neighbours, then this sentence.
  function labelled(points, near, x, y) {
    const letter = 6.8, line = 14;
    const rank = (number) => (number === state.point ? 0 : near.has(number) ? 1 : points[number].group === 0 ? 2 : 3);
    const taken = [], kept = new Set();
    for (const number of points.map((_, number) => number).sort((a, b) => rank(a) - rank(b))) {
      const left = x(points[number].x), wide = 10 + letter * short(points[number].text).length;
      const box = left > WIDE * 0.62 ? [left - wide, left] : [left, left + wide], middle = y(points[number].y);
      const covers = (one, other) => other !== number && x(one.x) > box[0] - 6 && x(one.x) < box[1] + 6 && Math.abs(y(one.y) - middle) < 10;
      if (rank(number) > 1 && points.some(covers)) continue;
      if (taken.some(([from, to, other]) => box[0] < to && from < box[1] && Math.abs(other - middle) < line)) continue;
      taken.push([...box, middle]);
      kept.add(number);
    }
    return kept;
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
