// Questions to the server. What was computed beforehand is answered without it, while the model still loads.

const first = fetch("/first_view.json", { credentials: "same-origin" })
  .then((response) => (response.ok ? response.json() : {}))
  .catch(() => ({}));

// model: the name of one of the lab's models; null: its first
export async function ask(room, action, request, signal, model = null) {
  const body = JSON.stringify(request);
  const known = model === null && (await first)[`${room}/${action} ${body}`];
  const which = model === null ? "" : `?model=${encodeURIComponent(model)}`;
  if (known) return known;
  let response;
  for (const pause of [150, 600, 0]) {
    try {
      response = await fetch(`/api/${room}/${action}${which}`, {
        method: "POST", headers: { "content-type": "application/json" }, body, signal,
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error("The lab does not answer. Is it still running in the terminal?");
    }
    if (response.status !== 429 || !pause) break;
    await new Promise((done) => setTimeout(done, pause));
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(sentence(answer.error || `The lab answered with status ${response.status}.`));
  return answer;
}

// { model, models }: the lab's first model, and the names of all that can be chosen
export const about = () => fetch("/api/about").then((response) => response.json());

// Errors of the library are sentences without a capital and a full stop.
export const sentence = (text) => {
  const start = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(start) ? start : `${start}.`;
};
