// The family room: two models side by side, on the same sentence.

import { bars } from "../parts/bars.js";
import { make, unpack } from "../parts/dom.js";
import { whole } from "../parts/link.js";
import { heatMap } from "../parts/matrix.js";
import { sentenceEditor, TEXT, tokenRow } from "../parts/sentence.js";

export default function open(view, params) {
  const state = { text: TEXT, at: 15, other: null, layer: 0, head: 0 };
  let names = [];

  const editor = sentenceEditor({ value: state.text, onChange: (text) => { state.text = text; state.at = 0; refresh(); } });
  const sides = [side("left", null), side("right", (name) => { state.other = name; link(); describe(sides[1]); load(sides[1]); })];
  const hint = make("p", { class: "note" }, "The first model is the one chosen at the top of the page. Models are bundled, given with ",
    make("code", {}, "mini-bert lab --model FOLDER --model FOLDER"), ", or runs in the folder runs.");
  view.root.append(editor.element, view.error, make("div", { class: "models" }, sides.map((one) => one.element)), hint);

  const link = () => view.link({ text: state.text, at: state.at, layer: state.layer, head: state.head, other: state.other });

  // One model: its name, its pieces, its guesses, one of its heads.
  function side(place, onModel) {
    const own = { place, tokens: [], name: () => (place === "left" ? view.shell.model : state.other) };
    const title = make("span", {});
    const choice = make("select", { "aria-label": "The other model", on: { change: () => onModel(choice.value) } });
    own.row = tokenRow({ label: `Pieces of the ${place} model; press one to hide its word`, onPress: (number) => { state.at = own.tokens[number].start; refresh(); } });
    own.row.element.classList.add("tokens");
    Object.assign(own, { title, choice, facts: make("p", { class: "note facts" }), guessed: make("div", { "aria-live": "polite" }), map: make("div", { class: "scroll" }),
      error: make("p", { class: "error" }) });
    const picker = (label, key) => make("select", { "aria-label": `${label} of the ${place} model`, on: { change: (event) => { state[key] = Number(event.target.value); link(); sides.forEach(look); } } });
    own.layer = picker("Layer", "layer");
    own.head = picker("Head", "head");
    own.element = make("article", { class: "card" },
      make("div", {}, make("h2", {}, onModel ? choice : title), own.facts),
      own.error,
      make("section", {}, make("h3", {}, "Pieces"), own.row.element),
      make("section", {}, make("h3", {}, "Guesses"), own.guessed),
      make("section", {}, make("h3", {}, "Attention"), make("div", { class: "options" }, own.layer, own.head), own.map));
    return own;
  }

  function show(params, keep = false) {
    if (keep) {
      sides.forEach(look);
      return;
    }
    state.text = params.text ?? TEXT;
    state.at = whole(params.at, 0, 1999, state.text === TEXT ? 15 : 0);
    state.layer = whole(params.layer, 0, 99, 0);
    state.head = whole(params.head, 0, 99, 0);
    state.other = params.other ?? state.other;
    if (editor.value !== state.text) editor.set(state.text);
    describe(sides[0]);
    load(sides[0]);
    view.shell.about.then((about) => {
      if (view.closed) return;
      names = [about.model, ...about.models.filter((name) => name !== about.model)];
      const first = view.shell.model ?? about.model;
      state.other ??= names.find((name) => name !== first) ?? first;
      sides[0].title.textContent = first;
      sides[1].choice.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
      sides[1].choice.value = state.other;
      link();
      describe(sides[1]);
      load(sides[1]);
    }).catch(() => { view.error.textContent = "The lab does not answer. Is it still running in the terminal?"; });
  }

  async function describe(own) {
    const found = await view.ask("about", {}, `about ${own.place}`, own.name());
    if (!found) return;
    own.title.textContent = found.name;
    const fit = (node, count, word) => node.replaceChildren(...Array.from({ length: count }, (_, number) => make("option", { value: number }, `${word} ${number}`)));
    fit(own.layer, found.layers, "layer");
    fit(own.head, found.heads, "head");
    own.layer.value = Math.min(state.layer, found.layers - 1);
    own.head.value = Math.min(state.head, found.heads - 1);
    own.facts.textContent = `${found.kind}, ${found.parameters.toLocaleString("en")} parameters: ${found.layers} layers, ${found.heads} heads, width ${found.width}; `
      + `${found.tokenizer}, ${found.vocabulary.toLocaleString("en")} pieces; reads ${found.forward ? "forward only" : "both sides"}.`;
  }

  function refresh() {
    link();
    sides.forEach(load);
  }

  async function load(own) {
    look(own);
    const found = await view.ask("guesses", { text: state.text, at: Math.min(state.at, Math.max(0, state.text.length - 1)) }, `guesses ${own.place}`, own.name());
    if (!found) return;
    own.tokens = found.tokens;
    own.row.show(found.tokens, { pressed: new Set(found.places), fixed: (place) => ["cls", "sep"].includes(found.tokens[place].role) });
    own.guessed.replaceChildren(...(found.why ? [make("p", {}, found.why)] : [
      make("p", { class: "note" }, `Guessed from ${found.from}.`),
      ...found.gaps.flatMap((gap) => [
        make("h4", {}, gap.own === null ? "The gap" : ["Hidden: ", make("bdi", { class: "own" }, gap.own)]),
        bars(gap.guesses.map((one) => ({ name: one.word, share: one.p, mark: one.own })), { label: `Guesses of the ${own.place} model` }),
      ])]));
  }

  async function look(own) {
    const found = await view.ask("attention", { text: state.text, layer: state.layer, head: state.head }, `attention ${own.place}`, own.name());
    if (!found) return;
    own.layer.value = found.layer;
    own.head.value = found.head;
    const values = unpack(found.numbers, Float32Array), count = found.tokens.length;
    const { element } = heatMap({
      label: `Attention weights of layer ${found.layer}, head ${found.head}; rows are queries, columns are keys`, values, names: found.tokens, across: found.tokens,
      columns: count, most: 1, room: Math.min(own.map.clientWidth || 320, 460), least: 9,
    });
    own.map.replaceChildren(element);
  }

  show(params);
  return { show };
}
