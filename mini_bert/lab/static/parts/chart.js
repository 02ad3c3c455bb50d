// A line chart as SVG.

import { digits, svg } from "./dom.js";

const LEFT = 46, RIGHT = 12, TOP = 10, BOTTOM = 26;

const nice = (span, count) => {
  const raw = span / count, power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= raw);
};

export const small = (value) => (value !== 0 && Math.abs(value) < 0.01 ? value.toExponential(0).replace("-", "−") : Math.abs(value) >= 10_000 ? value.toExponential(0) : digits(value, Math.abs(value) < 1 ? 2 : Math.abs(value) < 20 ? 1 : 0));

// As many digits as it takes to tell two ticks apart.
const tick = (value, step) => (Math.abs(value) < step / 2 ? "0" : step < 0.001 || step >= 10_000 ? small(value) : digits(value, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9))));

// lines: [{ name, points: [[x, y]], kind }]; level: { value, name }; marks: [{ x, name }]; cursor: x
export function chart({ label, lines, width, height = 190, level = null, marks = [], cursor = null, across = null, least = null, most = null }) {
  const points = lines.flatMap((line) => line.points);
  const xs = points.map(([x]) => x), ys = [...points.map(([, y]) => y), ...(level ? [level.value] : [])];
  const x1 = Math.max(1, across ?? Math.max(1, ...xs)), x0 = 0;
  let y0 = least ?? Math.min(...ys), y1 = most ?? Math.max(...ys);
  if (!Number.isFinite(y0) || !Number.isFinite(y1)) [y0, y1] = [0, 1];
  if (y1 - y0 < 1e-12) [y0, y1] = [y0 - Math.abs(y0 || 1) * 0.1, y1 + Math.abs(y1 || 1) * 0.1];
  const x = (value) => LEFT + ((width - LEFT - RIGHT) * (value - x0)) / (x1 - x0);
  const y = (value) => TOP + (height - TOP - BOTTOM) * (1 - (Math.max(y0, Math.min(y1, value)) - y0) / (y1 - y0));
  const parts = [];
  const stepY = nice(y1 - y0, 4);
  for (let value = Math.ceil(y0 / stepY) * stepY; value <= y1 + 1e-12; value += stepY) {
    parts.push(svg("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      svg("text", { x: LEFT - 6, y: y(value), "text-anchor": "end", "dominant-baseline": "central" }, tick(value, stepY)));
  }
  const stepX = nice(x1 - x0, Math.max(2, Math.floor(width / 110)));
  for (let value = 0; value <= x1; value += stepX) {
    parts.push(svg("text", { x: x(value), y: height - 7, "text-anchor": value ? "middle" : "start" }, Math.round(value).toLocaleString("en")));
  }
  if (level) parts.push(svg("line", { class: "level", x1: LEFT, x2: width - RIGHT, y1: y(level.value), y2: y(level.value) }));
  for (const mark of marks) {
    parts.push(svg("line", { class: "mark", x1: x(mark.x), x2: x(mark.x), y1: TOP, y2: height - BOTTOM }, svg("title", {}, mark.name)));
  }
  if (cursor !== null) parts.push(svg("line", { class: "cursor", x1: x(cursor), x2: x(cursor), y1: TOP - 4, y2: height - BOTTOM }));
  for (const line of lines) {
    if (!line.points.length) continue;
    const path = line.points.map(([px, py], place) => `${place ? "L" : "M"}${x(px).toFixed(1)} ${y(py).toFixed(1)}`).join("");
    parts.push(svg("path", { class: `line ${line.kind ?? ""}`, d: path }));
    if (line.kind === "dots" || line.points.length === 1) for (const [px, py] of line.points) parts.push(svg("circle", { class: `dot ${line.kind ?? ""}`, cx: x(px), cy: y(py), r: 3 }));
  }
  if (level) parts.push(svg("text", { class: "of-level", x: LEFT + 6, y: y(level.value) - 6 }, level.name)); // on top of the lines
  const last = lines.filter((line) => line.points.length).map((line) => `${line.name} ${small(line.points.at(-1)[1])} at step ${line.points.at(-1)[0]}`);
  return svg("svg", { class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${label}: ${last.join(", ") || "nothing yet"}` }, parts);
}
