// A heat map: an SVG with labels around a picture of one pixel per number, so it stays sharp and can be saved as it is.

import { level, scale } from "./colour.js";
import { make, svg } from "./dom.js";

const FONT = 12, LETTER = 7.4; // pixels; a letter is that wide in bold

// The numbers as a PNG in a data address, one pixel each.
export function picture(values, rows, columns, most, signed) {
  const canvas = make("canvas", { width: columns, height: rows });
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const colours = scale(signed ? "signed" : "rising");
  for (let place = 0; place < rows * columns; place++) {
    const [r, g, b] = colours[level(values[place], most, signed)];
    image.data.set([r, g, b, 255], 4 * place);
  }
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

const short = (text, most = 12) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// names: of the rows; across: of the columns, or null; room: the width to use, in pixels; least, widest: of a cell; high:
// of a cell, or null for squares
// onPoint(row, column): pointed at, or reached with the arrow keys: the room shows the number in an element with
// role=status, or announces it; onChoose(row, column): pressed
export function heatMap({
  label, values, names, across = null, columns, most, signed = false, room, least = 0, widest = 26, high = null, onPoint, onChoose,
}) {
  const rows = names.length;
  const left = Math.ceil(LETTER * Math.max(...names.map((name) => short(name).length))) + 10;
  const head = across ? Math.ceil(LETTER * 1.12 * Math.max(...across.map((name) => short(name).length))) + 10 : 0;
  const wide = Math.max(least, Math.min(widest, (room - left - 4) / columns));
  high ??= wide;
  const width = left + wide * columns + 2, height = head + high * rows + 2;
  const image = svg("image", {
    x: left, y: head, width: wide * columns, height: high * rows, preserveAspectRatio: "none",
    "image-rendering": wide >= 1 ? "pixelated" : "auto", href: picture(values, rows, columns, most, signed),
  });
  const frame = svg("rect", { class: "frame", x: left - 0.5, y: head - 0.5, width: wide * columns + 1, height: high * rows + 1 });
  const marks = svg("g", { class: "marks" });
  const element = svg("svg", {
    class: "heat", width, height, viewBox: `0 0 ${width} ${height}`, tabindex: onPoint ? 0 : null,
    role: onPoint ? "group" : "img", "aria-roledescription": onPoint ? "heat map" : null,
    "aria-label": onPoint ? `${label}. Use the arrow keys to move between numbers.` : label,
  }, image, frame);
  const size = Math.min(FONT, Math.max(8, high - 1));
  const rowNames = names.map((name, row) => svg("text", {
    x: left - 6, y: head + high * (row + 0.5), "text-anchor": "end", "dominant-baseline": "central", "font-size": size,
  }, short(name)));
  const columnNames = (across ?? []).map((name, column) => svg("text", {
    "text-anchor": "start", "dominant-baseline": "central", "font-size": Math.min(FONT, Math.max(8, wide - 1)),
    transform: `translate(${left + wide * (column + 0.5)} ${head - 6}) rotate(-90)`,
  }, short(name)));
  element.append(...rowNames, ...columnNames, marks);

  let at = null;
  function point(row, column, tell = true) {
    at = [row, column];
    marks.replaceChildren(
      svg("rect", { class: "line", x: left, y: head + high * row, width: wide * columns, height: high }),
      wide >= 3 ? svg("rect", { class: "line", x: left + wide * column, y: head, width: wide, height: high * rows }) : "",
      svg("rect", { class: "cell", x: left + wide * column - (wide < 4 ? 2 : 0), y: head + high * row, width: Math.max(4, wide), height: high }));
    rowNames.forEach((node, own) => node.classList.toggle("on", own === row));
    columnNames.forEach((node, own) => node.classList.toggle("on", own === column));
    if (tell) onPoint?.(row, column);
  }
  const clear = () => {
    at = null;
    marks.replaceChildren();
    for (const node of [...rowNames, ...columnNames]) node.classList.remove("on");
  };
  // A band over some columns: those that are shown elsewhere as numbers
  const band = svg("rect", { class: "band", x: left, y: head - 2.5, width: 0, height: high * rows + 5 });
  element.append(band);
  const window = (from, count) => {
    band.setAttribute("x", left + wide * from);
    band.setAttribute("width", wide * count);
  };

  const find = (event) => {
    const box = element.getBoundingClientRect();
    const ratio = width / box.width;
    const column = Math.floor(((event.clientX - box.left) * ratio - left) / wide);
    const row = Math.floor(((event.clientY - box.top) * ratio - head) / high);
    return row >= 0 && row < rows && column >= 0 && column < columns ? [row, column] : null;
  };
  if (onPoint) {
    element.addEventListener("pointermove", (event) => {
      const found = find(event);
      if (found && (!at || found[0] !== at[0] || found[1] !== at[1])) point(...found);
    });
    element.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if ((event.key === "Enter" || event.key === " ") && at) {
        event.preventDefault();
        onChoose?.(...at);
      }
      if (!step) return;
      event.preventDefault();
      const [row, column] = at ?? [0, 0];
      point(Math.max(0, Math.min(rows - 1, row + step[0])), Math.max(0, Math.min(columns - 1, column + step[1])));
    });
  }
  if (onChoose) element.addEventListener("click", (event) => {
    const found = find(event);
    if (found) onChoose(...found);
  });
  return { element, point, clear, window };
}
