// One tooltip for the whole page. tip(node, text) shows text when the node is pointed at or has the focus.

import { make } from "./dom.js";

const box = make("div", { class: "tip", role: "tooltip", id: "tip", hidden: true });

export function tip(node, text) {
  const show = () => {
    const words = typeof text === "function" ? text() : text;
    if (!words) return;
    if (!box.isConnected) document.body.append(box);
    box.textContent = words;
    box.hidden = false;
    node.setAttribute("aria-describedby", "tip");
    place(node.getBoundingClientRect());
  };
  node.addEventListener("mouseenter", show);
  node.addEventListener("focus", show);
  for (const event of ["mouseleave", "blur", "click"]) node.addEventListener(event, () => hide(node));
  return node;
}

function hide(node) {
  box.hidden = true;
  node.removeAttribute("aria-describedby");
}

function place(around) {
  const own = box.getBoundingClientRect();
  const left = Math.min(innerWidth - own.width - 8, Math.max(8, around.left + around.width / 2 - own.width / 2));
  const above = around.top - own.height - 8;
  box.style.left = `${left + scrollX}px`;
  box.style.top = `${(above > 8 ? above : around.bottom + 8) + scrollY}px`;
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape") box.hidden = true;
});
