// The flow of the gradient from the loss (top) to the embeddings (bottom). Widths are norms, on one scale.

import { digits, roving, svg } from "./dom.js";

const WIDE = 370, MAIN = 118, SIDE = 205, FAR = 300, ROW = 36; // pixels
const MOST = 26, LEAST = 1.2; // width of a band

const SHORT = {
  logits: "Word scores", final_norm: "Final norm", hidden: "Output", output_sum: "Sum", contract: "Contract", activation: "Activation",
  expand: "Expand", attention_norm: "Norm", attention_sum: "Sum", output: "Output", context: "Context", value: "Value", attention: "Weights",
  scores: "Scores", query: "Query", key: "Key", embeddings: "Embeddings",
};

export const norm = (value) => (value >= 0.001 || value === 0 ? digits(value, 3) : value.toExponential(1).replace("-", "−"));

// operations: [{ step, layer, norm }]; paths: norms of what comes out of the halves of a block; onChoose(step, layer)
export function flowPicture({ operations, paths, loss, onChoose }) {
  const key = (step, layer) => `${step} ${layer ?? ""}`;
  const found = new Map(operations.map((one) => [key(one.step, one.layer), one]));
  const most = Math.max(1e-30, ...operations.map((one) => one.norm), ...Object.values(paths));
  const band = (size) => Math.max(LEAST, (MOST * size) / most);
  const places = new Map(), bands = svg("g", { class: "bands" }), nodes = svg("g", {});
  let y = 22;

  function put(x, step, layer) {
    places.set(key(step, layer), [x, y]);
    return [x, y];
  }
  const next = (many = 1) => { y += ROW * many; };
  const at = (step, layer) => places.get(key(step, layer));
  const size = (step, layer) => found.get(key(step, layer))?.norm ?? 0;

  function draw([x1, y1], [x2, y2], wide, kind = "") {
    const half = (y1 + y2) / 2;
    bands.append(svg("path", {
      class: `band-of-flow ${kind}`, "stroke-width": band(wide).toFixed(1),
      d: x1 === x2 ? `M${x1} ${y1}V${y2}` : `M${x1} ${y1}C${x1} ${half} ${x2} ${half} ${x2} ${y2}`,
    }));
  }

  // --- places and bands, from the loss down
  const start = [MAIN, y];
  let above = start;
  const down = (step, layer) => {
    next();
    const here = put(MAIN, step, layer);
    draw(above, here, size(step, layer));
    above = here;
    return here;
  };
  down("logits", null);
  down(found.has(key("final_norm", null)) ? "final_norm" : "hidden", null);
  const layers = [...new Set(operations.map((one) => one.layer).filter((layer) => layer !== null))];
  let waiting = null; // what comes out of attention, until the place below is known
  const arrive = (step, layer) => { // past attention, and through it
    const from = above;
    next();
    const here = put(MAIN, step, layer);
    draw(from, here, waiting ? size("attention_sum", waiting.layer) : size(step, layer));
    if (waiting) draw(waiting.place, here, paths[`attention_input_${waiting.layer}`] ?? 0, "through");
    waiting = null;
    above = here;
  };
  for (const layer of layers) {
    arrive("output_norm", layer);
    if (!found.has(key("output_sum", layer))) continue;
    const sum = down("output_sum", layer);
    let before = sum;
    for (const step of ["contract", "activation", "expand"]) {
      next();
      const here = put(SIDE, step, layer);
      draw(before, here, size(step, layer), "through");
      before = here;
    }
    next();
    const norm = put(MAIN, "attention_norm", layer);
    draw(sum, norm, size("output_sum", layer));
    draw(before, norm, paths[`feed_forward_input_${layer}`] ?? 0, "through");
    above = norm;
    before = down("attention_sum", layer);
    for (const step of ["output", "context"]) {
      next();
      const here = put(SIDE, step, layer);
      draw(before, here, size(step, layer), "through");
      before = here;
    }
    if (!found.has(key("scores", layer))) { // the inside of another kind of attention
      next();
      waiting = { layer, place: [SIDE - 24, y] };
      draw(before, waiting.place, paths[`attention_input_${layer}`] ?? 0, "through");
      continue;
    }
    next();
    const weights = put(SIDE, "attention", layer), value = put(FAR, "value", layer);
    draw(before, weights, size("attention", layer), "through");
    draw(before, value, size("value", layer), "through");
    next();
    const scores = put(SIDE, "scores", layer);
    draw(weights, scores, size("scores", layer), "through");
    next();
    const query = put(SIDE, "query", layer), keys = put(FAR, "key", layer);
    draw(scores, query, size("query", layer), "through");
    draw(scores, keys, size("key", layer), "through");
    next(0.7);
    const join = [SIDE - 24, y];
    for (const [from, step] of [[query, "query"], [keys, "key"], [value, "value"]]) draw(from, join, size(step, layer), "through");
    waiting = { layer, place: join };
  }
  arrive("embeddings", null);

  // --- what can be chosen
  nodes.append(svg("circle", { class: "loss", cx: start[0], cy: start[1], r: 9 }),
    svg("text", { class: "of-loss", x: start[0] - 20, y: start[1], "text-anchor": "end", "dominant-baseline": "central" }, `Loss ${digits(loss, 3)}`));
  for (const one of operations) {
    const [x, line] = at(one.step, one.layer);
    const left = x === MAIN, name = one.step === "output_norm" ? `Block ${one.layer}` : SHORT[one.step];
    const text = { x: left ? x - 20 : x + 13, "text-anchor": left ? "end" : "start", "dominant-baseline": "central" };
    nodes.append(svg("g", {
      class: one.step === "output_norm" ? "node block" : "node", role: "button", tabindex: -1, "data-step": one.step, "data-layer": one.layer ?? -1,
      "aria-label": `${name} ${norm(one.norm)}, the norm of the gradient at ${one.layer === null ? "" : `block ${one.layer}: `}${one.title}`,
      on: {
        click: () => onChoose(one.step, one.layer),
        keydown: (event) => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          onChoose(one.step, one.layer);
        },
      },
    },
    svg("rect", { class: "touch", x: left ? 2 : x - 12, y: line - ROW / 2 + 2, width: left ? MAIN + 12 : 94, height: ROW - 4, rx: 6 }),
    svg("circle", { cx: x, cy: line, r: 6 }),
    svg("text", { ...text, y: line - 6 }, `${name} `), svg("text", { ...text, class: "small", y: line + 8 }, norm(one.norm))));
  }
  const high = y + 30;
  const element = svg("svg", { class: "flow", viewBox: `0 0 ${WIDE} ${high}`, width: WIDE, height: high, role: "group", "aria-label": "The flow of the gradient, from the loss to the embeddings" }, bands, nodes);
  const { refresh } = roving(element, ".node", () => 1);
  function mark(step, layer) {
    let chosen = null;
    for (const node of nodes.querySelectorAll(".node")) {
      const own = node.dataset.step === step && node.dataset.layer === String(layer ?? -1);
      if (own) {
        chosen = node;
        node.setAttribute("aria-current", "step");
      } else node.removeAttribute("aria-current");
    }
    if (!element.contains(document.activeElement)) refresh(chosen);
    return (at(step, layer)?.[1] ?? 0) / high; // how far down
  }
  return { element, mark };
}
