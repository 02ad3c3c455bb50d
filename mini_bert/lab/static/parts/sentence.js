// The sentence editor, and the row of tokens below it.

import { make, roving, unique } from "./dom.js";
import { tip } from "./tooltip.js";

const PAUSE = 120; // milliseconds after the last key

export const TEXT = "She opened the door and looked into the room.";
const EXAMPLES = [
  TEXT, "She was born in New York in 1921.", "The old man closed his eyes and smiled.",
  "The cat sat on the mat because it was tired.",
];

export function sentenceEditor({ value, onChange, examples = EXAMPLES }) {
  const id = unique("sentence");
  let timer = 0;
  const field = make("textarea", {
    id, rows: 1, maxlength: 2000, spellcheck: "false", autocomplete: "off", autocapitalize: "off", "aria-describedby": `${id}-error`,
    on: {
      input: () => {
        fit();
        clearTimeout(timer);
        timer = setTimeout(() => onChange(field.value), PAUSE);
      },
      keydown: (event) => {
        if (event.key !== "Enter") return;
        event.preventDefault(); // a sentence has one line
        clearTimeout(timer);
        onChange(field.value);
      },
    },
  });
  const fit = () => {
    if (!field.isConnected) return;
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight + 2}px`;
  };
  const set = (text) => {
    field.value = text;
    if (field.isConnected) fit();
  };
  const choose = (text) => {
    clearTimeout(timer);
    set(text);
    onChange(text);
  };
  set(value);
  requestAnimationFrame(fit);
  addEventListener("resize", fit);
  const element = make("section", { class: "sentence" },
    make("label", { for: id, class: "label" }, "Sentence"), field,
    make("details", { class: "examples" }, make("summary", {}, "Examples"),
      make("div", {}, examples.map((text) => make("button", { type: "button", class: "quiet", on: { click: () => choose(text) } }, text)))));
  return { element, set, fit, get value() { return field.value; } };
}

// Tokens as buttons. onPress(place); show(tokens, { pressed, current, note(place), tint(place), hint(place), fixed(place),
// faded(place) })
export function tokenRow({ label, onPress }) {
  const element = make("div", { class: "tokens", role: "group", "aria-label": label });
  const { refresh } = roving(element, "button");
  function show(tokens, { pressed = new Set(), current = null, note, tint, hint, fixed, faded } = {}) {
    const focused = element.contains(document.activeElement) ? Number(document.activeElement.dataset.place) : null;
    const buttons = tokens.map((token, place) => {
      const locked = fixed?.(place) ?? false;
      const colours = tint?.(place);
      const button = make("button", {
        type: "button", "data-place": place, "aria-pressed": locked ? null : String(pressed.has(place)),
        "aria-current": current === place ? "true" : null, "aria-disabled": locked ? "true" : null,
        class: ["token", token.role && "added", token.word !== null && tokens[place - 1]?.word === token.word && "joined", faded?.(place) && "faded"].filter(Boolean).join(" "),
        style: colours ? { background: colours.background, color: colours.ink } : {},
        on: { click: () => locked || onPress(place) },
      }, make("bdi", {}, token.text));
      const extra = note?.(place);
      if (extra) button.append(extra);
      if (hint) tip(button, () => hint(place));
      return button;
    });
    const words = []; // the pieces of a word stay together at the end of a line
    buttons.forEach((button) => (button.classList.contains("joined") ? words.at(-1).push(button) : words.push([button])));
    element.replaceChildren(...words.map((pieces) => (pieces.length > 1 ? make("span", { class: "pieces-of-word" }, pieces) : pieces[0])));
    refresh();
    if (focused !== null) element.querySelector(`[data-place="${focused}"]`)?.focus();
  }
  return { element, show };
}

// A choice of few: buttons side by side. choices: [[value, text]]
export function segmented({ label, choices, value, onChange }) {
  const element = make("div", { class: "segmented", role: "group", "aria-label": label });
  let current = value;
  const show = () => {
    for (const button of element.children) button.setAttribute("aria-pressed", String(button.value === current));
  };
  element.append(...choices.map(([own, text]) => make("button", {
    type: "button", value: own,
    on: { click: () => { current = own; show(); onChange(own); } },
  }, text)));
  show();
  return { element, set: (own) => { current = own; show(); } };
}

export function toggle({ label, value, onChange }) {
  const box = make("input", { type: "checkbox", on: { change: () => onChange(box.checked) } });
  box.checked = value;
  return { element: make("label", { class: "toggle" }, box, make("span", {}, label)), set: (on) => { box.checked = on; } };
}
