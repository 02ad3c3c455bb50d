// What a room gets: a place to draw, its link, and questions to the server with errors shown in one line.

import { ask, sentence } from "./api.js";
import { make } from "./dom.js";
import { linkTo } from "./link.js";

export class View {
  constructor(room, shell) {
    this.room = room;
    this.shell = shell;
    this.asking = new Map();
    this.error = make("p", { class: "error", role: "alert" });
    this.root = make("div", { class: `room ${room.name}` });
    this.closed = false;
  }

  // The answer, or null if a newer question of the same kind has replaced this one, or an error was shown.
  // into: where it says that this model cannot do this; by default, where errors are
  async ask(action, request, kind = action, model = this.shell.model, into = null) {
    this.asking.get(kind)?.abort();
    const own = new AbortController();
    this.asking.set(kind, own);
    const done = this.shell.busy();
    try {
      const answer = await ask(this.room.name, action, request, own.signal, model);
      if (own.signal.aborted || this.closed) return null;
      this.error.textContent = "";
      if (answer.unable === undefined) return answer;
      if (into) into.replaceChildren(make("p", { class: "note" }, sentence(answer.unable)));
      else this.error.textContent = sentence(answer.unable);
      return null;
    } catch (error) {
      if (error.name !== "AbortError" && !this.closed) this.error.textContent = error.message;
      return null;
    } finally {
      done();
    }
  }

  // Remember what is shown in the address, so that it can be shared, and survives a reload.
  link(params) {
    history.replaceState(null, "", linkTo(this.room.name, { ...params, model: this.shell.model }));
    this.shell.linked(this.room.name, params);
  }

  announce(text) {
    this.shell.announce(text);
  }

  close() {
    this.closed = true;
    for (const own of this.asking.values()) own.abort();
  }
}
