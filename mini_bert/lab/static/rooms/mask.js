// The mask lab: press words to hide them, see the guesses.

import { colour, inkOn } from "../parts/colour.js";
import { bars } from "../parts/bars.js";
import { digits, make, percent } from "../parts/dom.js";
import { linkTo } from "../parts/link.js";
import { segmented, sentenceEditor, TEXT, toggle, tokenRow } from "../parts/sentence.js";

const CONTEXTS = [["both", "both sides"], ["left", "left only"], ["right", "right only"]];
const SURPRISING = 10; // nats at which the colour is full

export default function open(view, params) {
  const state = { text: TEXT, hidden: [4], context: "both", surprise: true };
  let tokens = [], surprises = new Map(), forward = false;

  const editor = sentenceEditor({ value: state.text, onChange: (text) => { state.text = text; state.hidden = []; refresh(); } });
  const row = tokenRow({ label: "Words; press one to hide it or to show it again", onPress: press });
  const context = segmented({ label: "What the model may see", choices: CONTEXTS, value: state.context, onChange: (value) => { state.context = value; guess(); } });
  const contexts = make("div", { class: "option" }, make("span", { class: "label" }, "Context"), context.element);
  const shading = toggle({ label: "Colour each word by how much it surprises the model when it alone is hidden", value: true, onChange: (on) => { state.surprise = on; draw(); } });
  const cards = make("div", { class: "cards" });
  const filled = make("p", { class: "filled", "aria-live": "polite" });

  view.root.append(
    editor.element, view.error,
    make("section", { class: "panel" },
      make("h2", {}, "Press words to hide them"),
      row.element,
      make("div", { class: "options" }, contexts, shading.element)),
    make("section", {}, make("h2", {}, "Guesses"), filled, cards));

  // A word is hidden with all its pieces.
  function press(place) {
    const word = tokens[place].word;
    const pieces = tokens.flatMap((token, own) => (token.word === word && !["cls", "sep"].includes(token.role) ? [own] : []));
    const shown = state.hidden.includes(place);
    state.hidden = shown ? state.hidden.filter((own) => !pieces.includes(own)) : [...new Set([...state.hidden, ...pieces])].sort((a, b) => a - b);
    view.announce(`${tokens[place].text} is ${shown ? "shown" : "hidden"}`);
    draw();
    guess();
  }

  function show(params, keep = false) {
    if (!keep) {
      state.text = params.text ?? TEXT;
      state.context = CONTEXTS.some(([value]) => value === params.context) ? params.context : "both";
      state.hidden = params.hidden === undefined ? (state.text === TEXT ? [4] : []) : params.hidden.split(",").filter((one) => /^\d{1,3}$/.test(one)).map(Number);
      if (editor.value !== state.text) editor.set(state.text);
      context.set(state.context);
      refresh();
    } else draw();
  }

  function refresh() {
    surprises = new Map();
    guess();
    measure();
  }

  async function measure() {
    const answer = await view.ask("surprise", { text: state.text });
    if (!answer) return;
    surprises = new Map(answer.tokens.map((one) => [one.position, one]));
    draw();
  }

  const cannot = (answer) => answer.why !== null && !answer.forward;

  async function guess() {
    view.link({ text: state.text, hidden: state.hidden.join(","), context: state.context === "both" ? "" : state.context });
    const answer = await view.ask("guess", { text: state.text, hidden: state.hidden, context: state.context, top: 8 });
    if (!answer) return;
    tokens = answer.tokens;
    forward = answer.forward;
    contexts.hidden = forward || cannot(answer);
    draw();
    const several = answer.gaps.length > 1;
    const room = (name, text) => make("a", { href: linkTo(name, { text: state.text, model: view.shell.model }) }, text);
    filled.replaceChildren(...(cannot(answer)
      ? [answer.why, " Its colours above say how surprising each word is; see it at work in the ", room("stepper", "Stepper"), ", ", room("attention", "Attention"), " or ", room("vectors", "Vectors"), "."]
      : answer.gaps.length ? ["With the best guesses: ", make("q", {}, make("bdi", {}, answer.filled))]
      : [answer.why ?? (forward ? "Nothing is hidden yet. Press a word above." : "Nothing is hidden yet. Press a word above, or write [MASK] in the sentence.")]));
    if (forward && answer.gaps.length) filled.append(" This model reads forward: each word is guessed from all words before it.");
    cards.replaceChildren(...answer.gaps.map((gap, number) => card(gap, several ? number + 1 : 0)));
  }

  function card(gap, number) {
    const { own } = gap;
    const listed = own && gap.guesses.some((one) => one.id === own.id);
    const rows = gap.guesses.map((one) => ({
      name: one.word, share: one.p, mark: own?.id === one.id, hint: `Put “${one.word}” into the sentence`,
      act: () => use(gap.position, one.word),
    }));
    if (own && !listed) rows.push({ name: own.word, share: own.p, mark: true, note: `${percent(own.p)}` });
    return make("article", { class: "card" },
      make("h3", {}, number ? `Gap ${number}` : "The gap",
        own ? make("span", { class: "note" }, " hidden: ", make("bdi", { class: "own" }, own.word)) : null),
      bars(rows, { label: `Guesses${number ? ` for gap ${number}` : ""}` }),
      own ? make("p", { class: "note" }, `The hidden word is guess number ${own.rank.toLocaleString("en")} of the model; `,
        `surprise −ln p = ${digits(own.surprise, 2)} nats.`) : null);
  }

  // Put a guess into the sentence, in place of the token.
  function use(position, word) {
    const { start, end } = tokens[position];
    const piece = word.startsWith("##");
    const before = piece ? state.text.slice(0, start).trimEnd() : state.text.slice(0, start);
    const text = before + (piece ? word.slice(2) : word) + state.text.slice(end);
    const hidden = state.hidden.filter((own) => own !== position);
    editor.set(text);
    state.text = text;
    state.hidden = piece ? [] : hidden;
    refresh();
    view.announce(`The sentence is now: ${text}`);
  }

  // Whether no gap sees this token.
  const gaps = () => [...new Set([...state.hidden, ...tokens.flatMap((token, place) => (token.role === "mask" ? [place] : []))])];
  const seen = () => (forward ? "left" : state.context);
  const unseen = (place) => seen() !== "both" && gaps().length > 0 && isWord(place)
    && gaps().every((gap) => (seen() === "left" ? place > gap : place < gap));
  const isWord = (place) => !["cls", "sep"].includes(tokens[place].role);

  function draw() {
    const most = SURPRISING;
    row.show(tokens, {
      pressed: new Set(gaps()),
      fixed: (place) => ["cls", "sep", "mask"].includes(tokens[place].role),
      tint: (place) => {
        const one = surprises.get(place);
        if (!state.surprise || !one || state.hidden.includes(place) || unseen(place)) return null;
        const value = 0.8 * one.surprise;
        return { background: colour(value, most, false), ink: inkOn(value, most, false) };
      },
      faded: (place) => unseen(place),
      hint: (place) => {
        const one = surprises.get(place), token = tokens[place];
        if (["cls", "sep"].includes(token.role)) return `${token.text} is added by the tokenizer`;
        if (!one) return "";
        return `surprise ${digits(one.surprise, 1)} nats; the model’s own guess: ${one.guess}, ${percent(one.certainty)}`;
      },
    });
  }

  show(params);
  return { show };
}
