// The text room: pieces by three tokenizers, how a word is spelt, and vocabularies that are learnt step by step.

import { bars } from "../parts/bars.js";
import { digits, make, unique } from "../parts/dom.js";
import { whole } from "../parts/link.js";
import { segmented, sentenceEditor, tokenRow } from "../parts/sentence.js";
import { tip } from "../parts/tooltip.js";

const TEXT = "The unaffable zebras of Madagascar opened the door.";
const EXAMPLES = [TEXT, "She was born in New York in 1921.", "The naïve café is in 東京.", "antidisestablishmentarianism, unbelievably"];
const TITLES = { wordpiece: "WordPiece", bpe: "BPE", unigram: "Unigram" };
const RULES = {
  wordpiece: "The longest piece that the word starts with, then the longest that the rest starts with, and so on.",
  bpe: "Single bytes at first; then neighbours are merged, the pair that was learnt first before all others. ▁ is a space.",
  unigram: "Of all ways to spell the word, the one with the highest sum of scores. A score is the logarithm of a probability.",
};
const PASTED = "The lower the river, the slower it flows. The slowest rivers flow low and lower still. She knows that the river flows, and he "
  + "knows how slowly it flows: lower, slower, lowest, slowest. The flow of the river is the slow show of the low land. Now the river "
  + "is low, and the show is slow; now the widest river is the slowest, and the newest flow is the lowest.";
const PAUSE = 250;

export default function open(view, params) {
  const state = { text: TEXT, at: 4, kind: "wordpiece", step: 12, pasted: PASTED };
  let kinds = [];

  const editor = sentenceEditor({ value: state.text, examples: EXAMPLES, onChange: (text) => { state.text = text; refresh(); } });
  const cards = make("div", { class: "kinds" });
  const rows = new Map();
  const told = make("h2", {});
  const ways = make("div", { class: "kinds" });

  // --- a vocabulary is learnt

  let timer = 0;
  const id = unique("pasted"), slide = unique("step");
  const pasted = make("textarea", {
    id, class: "pasted", maxlength: 10000, spellcheck: "false",
    on: { input: () => { clearTimeout(timer); timer = setTimeout(() => { state.pasted = pasted.value; state.step = 0; train(); }, PAUSE); } },
  });
  pasted.value = state.pasted;
  const kind = segmented({ label: "Kind of tokenizer", choices: Object.entries(TITLES), value: state.kind, onChange: (value) => { state.kind = value; state.step = 0; train(); } });
  const slider = make("input", { type: "range", id: slide, min: 0, max: 0, step: 1, on: { input: () => go(Number(slider.value)) } });
  const back = make("button", { type: "button", "aria-label": "One step back", on: { click: () => go(state.step - 1) } }, "←");
  const on = make("button", { type: "button", "aria-label": "One step on", on: { click: () => go(state.step + 1) } }, "→");
  const learnt = make("div", { class: "learning" });

  view.root.append(
    editor.element, view.error,
    make("section", {}, make("h2", {}, "The same text, three tokenizers, 8,192 pieces each"),
      cards, make("p", { class: "note" }, "Below each piece: its id, and which characters of the text it comes from. Press a piece to see how its word was made.")),
    make("section", { class: "panel" }, told, ways),
    make("section", {}, make("h2", {}, "Learn a vocabulary, step by step"),
      make("div", { class: "learning" },
        make("label", { for: id, class: "label" }, "Text to learn from (at most 10,000 characters)"), pasted,
        make("div", { class: "options" }, kind.element),
        make("div", { class: "slider" }, make("label", { for: slide, class: "label" }, "Step"), back, slider, on),
        learnt)));

  function go(step) {
    state.step = Math.max(0, Math.min(Number(slider.max), step));
    train();
  }

  function show(params, keep = false) {
    if (keep) return;
    state.text = params.text ?? TEXT;
    state.at = whole(params.at, 0, 1999, state.text === TEXT ? 4 : 0);
    state.kind = params.kind in TITLES ? params.kind : "wordpiece";
    state.step = whole(params.step, 0, 10000, 12);
    if (editor.value !== state.text) editor.set(state.text);
    kind.set(state.kind);
    refresh();
    train();
  }

  const link = () => view.link({ text: state.text, at: state.at, kind: state.kind, step: state.step });

  async function refresh() {
    link();
    const answer = await view.ask("pieces", { text: state.text });
    if (!answer) return;
    kinds = answer.kinds;
    if (!cards.childElementCount) {
      cards.append(...kinds.map((one) => {
        const row = tokenRow({ label: `Pieces by ${TITLES[one.kind]}`, onPress: (place) => choose(kinds.find((own) => own.kind === one.kind).pieces[place].start) });
        row.element.classList.add("pieces");
        const count = make("span", { class: "note" });
        rows.set(one.kind, { row, count });
        return make("article", { class: "card" }, make("h3", {}, TITLES[one.kind], count), row.element);
      }));
    }
    if (state.at >= state.text.length) state.at = 0;
    draw();
    spell();
  }

  function choose(at) {
    state.at = at;
    link();
    draw();
    spell();
  }

  function draw() {
    for (const one of kinds) {
      const { row, count } = rows.get(one.kind);
      count.textContent = `${one.name}: ${one.count} ${one.count === 1 ? "piece" : "pieces"}`;
      const word = one.pieces.find((piece) => piece.word !== null && state.at < Math.max(piece.end, piece.start + 1))?.word;
      row.show(one.pieces, {
        pressed: new Set(one.pieces.flatMap((piece, place) => (piece.word !== null && piece.word === word ? [place] : []))),
        fixed: (place) => Boolean(one.pieces[place].role),
        note: (place) => {
          const piece = one.pieces[place];
          return make("span", {}, make("small", {}, piece.id), make("small", {}, piece.role ? "added" : `${piece.start}–${piece.end}`));
        },
        hint: (place) => {
          const piece = one.pieces[place];
          return piece.role ? `${piece.text} is added by the tokenizer` : `id ${piece.id}, from “${state.text.slice(piece.start, piece.end)}”`;
        },
      });
    }
  }

  // --- how a word is spelt

  async function spell() {
    if (!kinds.some((one) => one.count)) {
      told.textContent = "There is no word yet. Type a sentence.";
      ways.replaceChildren();
      return;
    }
    const answer = await view.ask("spelling", { text: state.text, at: state.at });
    if (!answer) return;
    told.replaceChildren("How “", make("bdi", {}, answer.word), "” is spelt");
    ways.replaceChildren(...answer.kinds.map((one) => make("section", {},
      make("h3", {}, TITLES[one.kind]), make("p", { class: "note" }, RULES[one.kind]),
      one.why ? make("p", {}, one.why) : { wordpiece: matching, bpe: merging, unigram: paths }[one.kind](one))));
  }

  const chip = (text, note = null, kind = "") => make("span", { class: `chip ${kind}` }, make("bdi", {}, text), note === null ? null : make("small", {}, note));
  const chips = (texts, marked = -1) => make("span", { class: "chips" }, texts.map((text, place) => chip(text, null, place === marked ? "new" : "")));

  const matching = (one) => make("ol", { class: "made" },
    one.steps.map((step) => make("li", {},
      step.piece === null
        ? make("span", {}, "Nothing fits ", chip(step.rest), ", so the whole word is ", chip("[UNK]", null, "new"))
        : make("span", {}, chip(step.piece, step.id, "new")),
      make("span", { class: "note" }, step.tried.length
        ? ["not in the vocabulary: ", step.tried.slice(0, 8).join(", "), step.tried.length > 8 ? `, … (${step.tried.length})` : ""]
        : "the whole rest is in the vocabulary"))));

  const merging = (one) => make("ol", { class: "made" },
    one.steps.map((step) => make("li", {},
      make("span", { class: "note" }, step.rank === null ? "single bytes" : `merge ${step.rank.toLocaleString("en")} of ${one.merges.toLocaleString("en")}`),
      chips(step.pieces, step.place ?? -1))));

  function paths(one) {
    const [best, other] = one.ways;
    return make("div", {},
      make("ol", { class: "made" }, one.ways.map((way, place) => make("li", {},
        make("div", { class: place ? "way" : "way best" },
          make("span", { class: "chips" }, way.pieces.map((piece) => chip(piece.text, digits(piece.score, 2), piece.known ? "" : "idle"))),
          make("b", {}, digits(way.total, 2)))))),
      make("p", { class: "note" }, other
        ? `The best way is e^${digits(best.total - other.total, 2)} = ${ratio(best.total - other.total)} times as probable as the next.`
        : "There is no other way to spell it with these pieces."));
  }
  const ratio = (gap) => (gap > 14 ? "more than a million" : Math.exp(gap) >= 100 ? Math.round(Math.exp(gap)).toLocaleString("en") : digits(Math.exp(gap), 1));

  // --- a state of learning

  let heard = null; // by someone with a screen reader
  async function train() {
    link();
    const answer = await view.ask("learn", { text: state.pasted, kind: state.kind, step: state.step });
    if (!answer) return;
    state.step = answer.step;
    slider.max = answer.steps;
    slider.value = answer.step;
    slider.setAttribute("aria-valuetext", `step ${answer.step} of ${answer.steps}`);
    back.disabled = answer.step === 0;
    on.disabled = answer.step === answer.steps;
    const size = make("p", { class: "note" }, `Step ${answer.step} of ${answer.steps}. The vocabulary has ${answer.pieces.toLocaleString("en")} pieces; the text takes `,
      `${answer.tokens.toLocaleString("en")} of them, ${digits(answer.characters / answer.tokens, 2)} ${answer.kind === "bpe" ? "bytes" : "characters"} each.`);
    if (heard !== `${answer.kind} ${answer.step}`) view.announce(`${answer.merged ? `${answer.merged.left} + ${answer.merged.right} became ${answer.merged.text}. ` : ""}${size.textContent}`);
    heard = `${answer.kind} ${answer.step}`;
    learnt.replaceChildren(size, ...(answer.kind === "unigram" ? pruned(answer) : joined(answer)),
      make("div", {}, make("h3", {}, "The most frequent words, as they are spelt now"),
        make("ol", { class: "spelt" }, answer.words.map((word) => make("li", {}, make("span", { class: "count" }, `${word.count}×`), chips(word.pieces, word.pieces.indexOf(answer.merged?.text)))))));
  }

  function joined(answer) {
    const { merged } = answer;
    const most = Math.max(1, ...answer.next.map((one) => one.count));
    return [
      make("p", {}, ...(merged
        ? [chip(merged.left), " + ", chip(merged.right), ` occurred ${merged.count} times, more often than any other pair, and became `, chip(merged.text, null, "new"), "."]
        : ["At first, every word is spelt with single ", answer.kind === "bpe" ? "bytes." : "characters; those that continue a word begin with ##."])),
      make("div", { class: "two" },
        make("section", {}, make("h3", {}, "The most frequent pairs now; the first is merged next"),
          answer.next.length
            ? bars(answer.next.map((one, place) => ({ name: `${one.left} + ${one.right}`, share: one.count, note: `${one.count}×`, mark: place === 0 })), { label: "Most frequent pairs", most })
            : make("p", { class: "note" }, "No pair occurs twice, so nothing more is learnt.")),
        make("section", {}, make("h3", {}, "Learnt so far, the newest first, and how often each is still used"),
          answer.learnt.length ? make("p", { class: "chips" }, answer.learnt.map((piece, place) => unused(chip(piece.text, piece.uses, piece.uses ? (place ? "" : "new") : "idle"), piece))) : make("p", { class: "note" }, "Nothing yet."),
          make("p", { class: "note" }, answer.kind === "bpe"
            ? "A piece that is only a step to longer ones stays: text is spelt by the same merges in the same order."
            : "A piece that is no longer used is dropped in the end; our WordPiece vocabularies keep only pieces that earn their entry."))),
    ];
  }
  const unused = (node, piece) => (piece.uses ? node : tip(node, "only a step on the way to longer pieces"));

  function pruned(answer) {
    const said = {
      first: "At first there are far too many pieces: all characters, and all substrings that occur at least twice.",
      estimate: "The probability of each piece was estimated again, from all ways to spell every word (expectation-maximisation). Pieces that hardly occur go.",
      prune: `The pieces that are missed least were taken away: ${answer.removed_count.toLocaleString("en")}.`,
    };
    return [
      make("p", {}, said[answer.doing], ` With the best spelling of each word, the text has the score ${digits(answer.total, 0)}.`),
      make("div", { class: "two" },
        make("section", {}, make("h3", {}, "The most probable pieces, and their scores"),
          make("p", { class: "chips" }, answer.learnt.map((piece) => chip(piece.text, digits(piece.score, 1))))),
        make("section", {}, make("h3", {}, "Taken away in this step"),
          answer.removed.length ? make("p", { class: "chips" }, answer.removed.map((text) => chip(text, null, "idle"))) : make("p", { class: "note" }, "None."))),
    ];
  }

  show(params);
  return { show };
}
