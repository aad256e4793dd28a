// The address book: who says how each broker is reached, and whether that is so.

import { get } from "./api.js";
import { ago, badge, byId, count, empty, h, show } from "./dom.js";

const TRUST = { config: "the config", annotation: "an annotation", derived: "follows from objects in the cluster", admin: "the brokers themselves" };
const ABROAD = "An address for clients, which this sidecar does not connect to. Run doctor where clients are.";
let latest = null;

export function start() {
  byId("check").addEventListener("click", check);
  byId("book-filter").addEventListener("input", render);
}

export async function load() {
  latest = await get("brokers");
  render();
}

// A round of doctor takes a while; its findings are shown as they come in.
async function check() {
  let state = await get("reachability");
  do {
    await load();
    if (!state.running) break;
    await new Promise((done) => setTimeout(done, 500));
    state = latest.check;
  } while (state.running);
  await load();
}

export async function entered() {
  await load();
  if (!latest.check.checkedAt && !latest.check.running) await check();
}

function render() {
  if (!latest) return;
  const { check: { running, checkedAt, reachable, unreachable, notJudged } } = latest;
  const found = reachable + unreachable;
  byId("checked").textContent = running ? `Checking: ${found + notJudged} tried so far…`
    : checkedAt ? `${reachable} of ${found} addresses reachable from here${notJudged ? `, ${notJudged} for clients not judged` : ""}, checked ${ago(checkedAt)}` : "Not checked yet";
  show(byId("book-conflicts"), latest.conflicts, conflicts);
  const wanted = byId("book-filter").value.trim().toLowerCase();
  const brokers = latest.brokers.filter((broker) => !wanted || JSON.stringify([broker.names, broker.addresses.map(({ url, listener }) => [url, listener])]).toLowerCase().includes(wanted));
  show(byId("book-content"), [brokers, latest.pool, wanted], () => {
    if (!latest.brokers.length) return empty("The address book is empty", "Redirects cannot be put on a listener. Write advertisedListeners, or let discovery find the brokers.");
    if (!brokers.length) return empty("No entry matches", `None of ${latest.brokers.length} has “${wanted}” in a name, address or listener.`);
    return [...brokers.map(card), latest.pool.length ? pool(latest.pool) : null];
  });
}

export function conflicts(all) {
  return all.length
    ? h("div", { class: "todo" }, h("h3", {}, `${count(all.length)} ${all.length === 1 ? "conflict" : "conflicts"}`),
      h("ul", {}, all.map(({ subject, text }) => h("li", {}, h("code", {}, subject), " ", text))))
    : null;
}

function card({ broker, names, template, source, addresses }) {
  return h("article", { class: "entry" },
    h("header", {}, h("h3", {}, h("code", {}, broker)), template ? badge("template") : null, badge(source, source, TRUST[source])),
    names.length > 1 ? h("p", { class: "soft small" }, "also ", names.slice(1).join(", ")) : null,
    h("ul", { class: "addresses" }, addresses.map(address)));
}

function address({ listener, url, source, by, reach }) {
  return h("li", {},
    h("span", {}, badge(listener, "listener")),
    h("code", { class: "name" }, url),
    h("span", { class: "soft small said" }, `${source}, ${by}`),
    h("span", { class: "reach" }, reached(reach)));
}

function reached(reach) {
  if (!reach.length) return badge("not checked");
  if (reach.length === 1) return mark(reach[0]);
  const judged = reach.filter((one) => one.judged);
  const bad = judged.filter(({ reachable }) => !reachable);
  return [judged.length ? badge(`${judged.length - bad.length} of ${judged.length} reachable`, bad.length ? "warn" : "good") : badge("not judged from here", "", ABROAD),
    bad.length ? h("ul", { class: "plain small" }, bad.map(({ url, problem }) => h("li", {}, h("code", {}, url), " ", problem))) : null];
}

const mark = ({ reachable, judged, answers, problem }) => (reachable ? badge(`reachable (${answers})`, "good")
  : judged ? [badge("unreachable", "bad"), h("span", { class: "small" }, " ", problem)]
  : [badge("not judged from here", "", ABROAD), h("span", { class: "small soft" }, " ", problem)]);

const pool = (all) => h("article", { class: "entry" },
  h("header", {}, h("h3", {}, "Pool"), h("span", { class: "soft" }, "brokers.webServiceUrl")),
  h("ul", { class: "addresses" }, all.map((one) => h("li", {}, h("span", {}, badge("pool")), h("code", { class: "name" }, one.url), h("span", {}), h("span", { class: "reach" }, mark(one))))));
