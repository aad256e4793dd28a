// The page: which view is shown, when it is refreshed, and what is shown when the sidecar does not answer.

import { Away, get, Refused, Stream } from "./api.js";
import * as book from "./book.js";
import * as changes from "./changes.js";
import * as config from "./config.js";
import * as decisions from "./decisions.js";
import * as ingresses from "./ingresses.js";
import { byId } from "./dom.js";
import * as overview from "./overview.js";
import * as whatIf from "./what-if.js";

const VIEWS = {
  overview: { title: "Overview", load: overview.load },
  ingresses: { title: "Ingresses", load: ingresses.load },
  book: { title: "Address book", load: book.load, entered: book.entered },
  decisions: { title: "Decisions", load: decisions.load, entered: decisions.entered },
  "what-if": { title: "What-if", load: whatIf.load, entered: whatIf.entered },
  config: { title: "Config", load: () => config.load(status) },
  changes: { title: "Changes", load: changes.load },
};

let current = null;
let isLive = false;
let status = null;

const stream = new Stream({
  decision: decisions.heard,
  leftOut: decisions.leftOut,
  beat: refresh,
  away: () => live(false),
});

function live(is, why = "The sidecar does not answer") {
  isLive = is;
  document.body.classList.toggle("stale", !is);
  const banner = byId("banner");
  const words = is ? "" : `${why}. ${status ? "What is shown is what was known last; trying again." : "Trying again."}`;
  if (banner.textContent !== words) banner.textContent = words;
  if (status) overview.pills(status, is);
}

async function attempt(work) {
  try {
    await work();
  } catch (fault) {
    live(false, fault instanceof Refused ? `The sidecar refuses: ${fault.message}` : undefined);
    if (!(fault instanceof Away || fault instanceof Refused)) throw fault;
  }
}

function refresh() {
  return attempt(async () => {
    status = await get("status");
    if (!isLive) await decisions.resume(status.startedAt);
    live(true);
    await VIEWS[current].load?.();
  });
}

async function begin() {
  isLive = false;
  await refresh();
  if (!isLive) stream.open();
}

function route(isFirst = false) {
  if (location.hash && !location.hash.startsWith("#/")) return;  // the link that skips to the view
  const [wanted, query] = location.hash.slice(2).split(/\?(.*)/s);
  const previous = current;
  current = Object.hasOwn(VIEWS, wanted) ? wanted : "overview";
  for (const name of Object.keys(VIEWS)) byId(name).hidden = name !== current;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${current}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${VIEWS[current].title} · pulsar-ingress-proxy`;
  if (!isFirst && current !== previous) byId(`${current}-title`).focus();
  attempt(async () => (VIEWS[current].entered ?? VIEWS[current].load)?.(new URLSearchParams(query)));
}

book.start();
config.start();
decisions.start(stream, attempt);
whatIf.start();
addEventListener("hashchange", () => route());
addEventListener("pagehide", () => stream.close());
addEventListener("pageshow", (event) => event.persisted && begin());
document.addEventListener("visibilitychange", () => (document.hidden ? stream.close() : begin()));
route(true);
await begin();
