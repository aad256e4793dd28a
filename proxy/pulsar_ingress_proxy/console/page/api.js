// The API, and the stream that says when to ask it again.

const PATIENCE = 16000;  // three beats, and a second
const RETRY = 2000;

export class Away extends Error {}
export class Refused extends Error {}

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { ...options, signal: AbortSignal.timeout(PATIENCE) });
  } catch (fault) {
    throw new Away(fault.message);
  }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(body.reason ?? `${answer.status} ${answer.statusText}`);
  return body;
}

export const get = (path) => ask(`/api/${path}`);

export const post = (path, question) =>
  ask(`/api/${path}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question) });

// Calls back with decisions, beats, what was left out, and whether the sidecar is there. It goes on by itself.
export class Stream {
  #source = null;
  #watch = null;
  #filter = {};
  #last = "";

  constructor({ decision, leftOut, beat, away }) {
    this.heard = { decision, leftOut, beat, away };
  }

  open(filter = this.#filter, since = this.#last) {
    this.close();
    this.#filter = filter;
    this.#last = since;
    if (document.hidden) return;  // a browser has few connections to one host, and the sidecar few streams
    const source = new EventSource(`/api/decisions/stream?${new URLSearchParams({ ...filter, since })}`);
    this.#source = source;
    source.addEventListener("decision", (event) => {
      this.#last = event.lastEventId;
      this.heard.decision(JSON.parse(event.data));
    });
    source.addEventListener("left-out", (event) => this.heard.leftOut(JSON.parse(event.data).count));
    source.addEventListener("beat", (event) => {
      this.#await(PATIENCE);
      this.heard.beat(JSON.parse(event.data));
    });
    source.addEventListener("error", () => {
      this.heard.away();
      this.#await(RETRY);
    });
    this.#await(PATIENCE);
  }

  close() {
    clearTimeout(this.#watch);
    this.#source?.close();
  }

  // Reconnects when nothing arrives for this long.
  #await(milliseconds) {
    clearTimeout(this.#watch);
    this.#watch = setTimeout(() => {
      this.heard.away();
      this.open();
    }, milliseconds);
  }
}
