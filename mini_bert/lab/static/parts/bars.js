// Bars: a list of names with shares, and sums as bars to both sides of zero.

import { digits, make, percent } from "./dom.js";

// rows: [{ name, share, note, mark, act }]; shares are from 0 to 1. act: called if the row is pressed
export function bars(rows, { label, most } = {}) {
  const longest = most ?? Math.max(0.5, ...rows.map((row) => row.share)); // a weak best guess looks weak
  return make("ol", { class: "bars", "aria-label": label },
    rows.map((row) => {
      const inside = [
        make("span", { class: "name" }, make("bdi", {}, row.name)),
        make("span", { class: "track", "aria-hidden": "true" },
          make("span", { class: "bar", style: { width: `${(100 * row.share) / longest}%` } })),
        make("span", { class: "share" }, row.note ?? percent(row.share)),
      ];
      const own = row.act
        ? make("button", { type: "button", class: "row", title: row.hint, on: { click: row.act } }, inside)
        : make("div", { class: "row" }, inside);
      return make("li", { class: row.mark ? "marked" : "" }, own);
    }));
}

// rows: [{ name, detail, value, rest }]
export function signedBars(rows, label) {
  const longest = Math.max(1e-9, ...rows.map((row) => Math.abs(row.value)));
  const zero = rows.some((row) => row.value < 0) ? (rows.some((row) => row.value > 0) ? 50 : 100) : 0; // percent from the left
  const room = Math.max(zero, 100 - zero);
  return make("ol", { class: "terms", "aria-label": label },
    rows.map((row) => {
      const long = (room * Math.abs(row.value)) / longest;
      return make("li", { class: row.rest ? "rest" : "" },
        make("span", { class: "name" }, make("bdi", {}, row.name), row.detail ? make("small", {}, row.detail) : null),
        make("span", { class: "track", "aria-hidden": "true" },
          make("span", {
            class: row.value < 0 ? "bar minus" : "bar plus",
            style: { width: `${long}%`, left: `${row.value < 0 ? zero - long : zero}%` },
          }),
          make("span", { class: "zero", style: { left: `${zero}%` } })),
        make("span", { class: "share" }, digits(row.value, 3)));
    }));
}
