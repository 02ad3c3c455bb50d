// What a room gets: a place to draw, its link, and questions to the server with errors shown in one line.

import { ask, sentence } from "./api.js";
import { make } from "./dom.js";
import { linkTo } from "./link.js";

export class View {
  constructor(room, shell) {
    this.room = room;
    this.shell = shell;
    this.asking = new Map();
    this.errors = new Map(); // one for each kind of question
    this.error = make("p", { class: "error", role: "alert" });
    this.root = make("div", { class: `room ${room.name}` });
    this.closing = new AbortController(); // its signal ends the listeners and timers of the room
    this.signal = this.closing.signal;
  }

  get closed() {
    return this.signal.aborted;
  }

  // The answer, or null if a newer question of the same kind has replaced this one, or an error was shown.
  // into: where it says that this model cannot do this; by default, where errors are
  async ask(action, request, { kind = action, model = this.shell.model, into = null } = {}) {
    if (this.closed) return null;
    this.asking.get(kind)?.abort();
    const own = new AbortController();
    this.asking.set(kind, own);
    const done = this.shell.busy();
    try {
      const answer = await ask(this.room.name, action, request, own.signal, model);
      if (own.signal.aborted) return null;
      const { unable } = answer;
      this.fail(kind, unable === undefined || into ? "" : sentence(unable));
      if (unable === undefined) return answer;
      into?.replaceChildren(make("p", { class: "note" }, sentence(unable)));
    } catch (error) {
      if (error.name !== "AbortError" && !own.signal.aborted) this.fail(kind, error.message);
    } finally {
      done();
    }
    return null;
  }

  // Shows an error until the next question of this kind has an answer. Several questions may fail for the same reason.
  fail(kind, text) {
    if (text) this.errors.set(kind, text);
    else this.errors.delete(kind);
    this.error.textContent = [...new Set(this.errors.values())].join(" ");
  }

  // Remember what is shown in the address, so that it can be shared, and survives a reload.
  link(params) {
    if (this.closed) return;
    history.replaceState(null, "", linkTo(this.room.name, { ...params, model: this.shell.model }));
    this.shell.linked(this.room.name, params);
  }

  // A function (act, pause) that calls act after a pause, unless it is called again before, or the room is closed.
  timer() {
    let waiting = 0;
    this.signal.addEventListener("abort", () => clearTimeout(waiting));
    return (act, pause) => {
      clearTimeout(waiting);
      if (!this.closed) waiting = setTimeout(act, pause);
    };
  }

  onResize(node, act) {
    const observer = new ResizeObserver(act);
    observer.observe(node);
    this.signal.addEventListener("abort", () => observer.disconnect());
  }

  announce(text) {
    this.shell.announce(text);
  }

  close() {
    this.closing.abort();
    for (const own of this.asking.values()) own.abort();
  }
}
