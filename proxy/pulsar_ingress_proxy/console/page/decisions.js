// Decisions as they are made, and those that are kept.

import { get, Refused } from "./api.js";
import { badge, byId, clock, count, empty, h, ms } from "./dom.js";
import * as filters from "./filters.js";
import { again } from "./what-if.js";

const MOST = 200;
const HEADS = [["time", "time"], ["decision", "decision"], ["through", "name"], ["topic", "name"], ["answer", "answer"], ["took", "n took"]];
const SORTS = { hit: "hits", miss: "misses", leak: "leaks", redirect: "redirects", failure: "failures" };

let stream = null;
let body = null;
let isPaused = false;
let waiting = [];
let tally = null;
let questions = 0;
let run = null;  // when the sidecar started that the list is from

export function start(opened, attempt) {
  stream = opened;
  filters.start(() => attempt(fill));
  byId("pause").addEventListener("click", () => {
    isPaused = !isPaused;
    byId("pause").setAttribute("aria-pressed", String(isPaused));
    byId("pause").textContent = isPaused ? "Go on" : "Pause";
    byId("left-out").textContent = "";
    if (!isPaused) waiting.splice(0).forEach(add);
  });
}

// The page's URL has the filters.
export async function entered(asked) {
  filters.read(Object.fromEntries([...new Set(asked.keys())].map((name) => [name, asked.getAll(name).join(",").trim()])));
  await Promise.all([filters.load(), questions ? fill() : null]);
}

// After the sidecar was away, or the page. A list that somebody reads stays, and the stream goes on where it was.
export async function resume(startedAt) {
  const isRead = startedAt === run && (isPaused || body?.querySelector("[aria-expanded=true]"));
  run = startedAt;
  if (isRead) stream.open();
  else await fill();
}

// What is kept, and from there on the stream. An answer that comes after a later question is dropped.
export async function fill() {
  const mine = ++questions, filter = filters.current();
  try {
    const unknown = filters.unknownNames();
    if (unknown.length) throw new Refused(unknown.map((name) => `${name}: is unknown`).join("; "));
    const { decisions, cursor, more, kept, made } = await get(`decisions?${new URLSearchParams({ ...filter, limit: MOST })}`);
    if (mine !== questions) return;
    tally = { matching: decisions.length + more, kept, made };
    started(none());
    decisions.reverse().forEach(add);
    stream.open(filter, cursor);
  } catch (fault) {
    if (!(fault instanceof Refused)) throw fault;
    if (mine !== questions) return;
    tally = null;
    started(empty("These filters cannot be read", fault.message.replace(/^bad-question: /, "")));
    stream.open({});  // for its beats
  }
  say("polite");
}

function started(instead) {
  waiting = [];
  body = null;
  byId("left-out").textContent = "";
  byId("decisions-content").replaceChildren(instead);
}

// How many are kept by now, and what can be chosen.
export async function load() {
  const mine = questions;
  if (!tally) return;
  const [{ decisions, more, kept, made }] = await Promise.all([get(`decisions?${new URLSearchParams({ ...filters.current(), limit: 1 })}`), filters.load()]);
  if (mine !== questions) return;
  tally = { matching: decisions.length + more, kept, made };
  say("off");
}

export function heard(decision) {
  if (!tally) return;
  // Once older ones are lost, each one more takes the place of another; the next beat has the numbers.
  const names = tally.made > tally.kept ? ["made"] : ["made", "kept", "matching"];
  for (const name of names) tally[name] += 1;
  say("off");
  if (!isPaused) {
    add(decision);
    return;
  }
  waiting = [...waiting.slice(1 - MOST), decision];
  byId("left-out").textContent = `${waiting.length === MOST ? `${MOST} or more` : waiting.length} waiting`;
}

export function leftOut(number) {
  if (tally && !isPaused) byId("left-out").textContent = `at least ${number} more came at once than are shown`;
}

const what = () => {
  const { only } = filters.current();
  return only ? SORTS[only] ?? "decisions of these sorts" : "decisions";
};

const isFiltered = () => Object.keys(filters.current()).some((name) => name !== "only");

// Read aloud after a question, but not with every decision.
function say(aloud) {
  byId("tally").setAttribute("aria-live", aloud);
  if (!tally) {
    byId("tally").textContent = "";
    return;
  }
  const { matching, kept, made } = tally;
  const lost = made - kept;
  byId("tally").textContent = [
    isFiltered() ? `${count(matching)} of ${count(kept)} ${what()} match.` : `${count(kept)} ${what()}.`,
    lost > 0 ? `${count(lost)} older ones are no longer kept.` : "",
    matching > MOST ? `The newest ${MOST} are shown.` : "",
  ].filter(Boolean).join(" ");
}

const none = () => (isFiltered()
  ? h("div", { class: "empty" }, h("p", {}, h("b", {}, "No decision matches")),
    h("p", { class: "soft" }, `None of the ${what()} in memory is what the filters ask for.`),
    h("button", { type: "button", onclick: () => byId("clear").click() }, "Clear the filters"))
  : empty(`No ${what()} yet`, "They appear here as they are decided."));

function add(decision) {
  if (!body) {
    body = h("tbody", {});
    byId("decisions-content").replaceChildren(h("div", { class: "scroll" }, h("table", { class: "cards decisions" },
      h("caption", { class: "hidden" }, "Decisions, the newest first"),
      h("thead", {}, h("tr", {}, HEADS.map(([text, kind]) => h("th", { scope: "col", class: kind }, text)))),
      body)));
  }
  body.prepend(...row(decision));
  while (body.rows.length > 2 * MOST) body.lastElementChild.remove();
}

// A row, and one with all the rest, which shows when it is asked for.
function row(decision) {
  const more = h("tr", { class: "more", hidden: true, id: `more-${decision.cursor}` }, h("td", { colspan: HEADS.length }));
  const button = h("button", {
    type: "button", class: "row", "aria-expanded": "false", "aria-controls": more.id,
    onclick: () => {
      if (more.hidden) more.firstElementChild.replaceChildren(details(decision));
      more.hidden = !more.hidden;
      button.setAttribute("aria-expanded", String(!more.hidden));
    },
  }, clock(decision.time));
  const cells = [button, marks(decision), through(decision), decision.topic ? h("code", {}, decision.topic.replace("persistent://", "")) : h("span", { class: "soft" }, decision.kind),
    answer(decision), ms(decision.durationMs)];
  return [h("tr", {}, cells.map((cell, place) => h("td", { class: HEADS[place][1], "data-label": HEADS[place][0] }, cell))), more];
}

function marks({ hit, missReason, listener, rule, leak, redirectAction, kind, protocol }) {
  return h("span", { class: "marks" },
    missReason ? badge(`miss: ${missReason}`, "bad") : hit ? badge(listener, "listener", `by ${rule}`) : null,
    hit ? h("span", { class: "soft small" }, `by ${rule}`) : null,
    kind === "lookup" ? null : badge(kind),
    protocol === "http" ? null : badge(protocol),
    redirectAction ? badge(redirectAction, "redirect") : null,
    leak ? badge(`leak: ${leak}`, "bad solid") : null);
}

const through = ({ ingress, host, serverName, bind }) => [h("code", {}, host ?? serverName ?? bind ?? "–"), ingress ? h("span", { class: "soft small" }, ` ${ingress}`) : null];

const answer = ({ status, broker }) => [status === null ? "–" : h("b", { class: status >= 400 ? "bad" : "" }, String(status)),
  broker ? h("span", { class: "soft small", title: broker }, ` ${broker.split(".")[0]}`) : null];

function details(decision) {
  const skipped = new Set(["schema", "cluster", "sidecar", "cursor"]);
  const fields = Object.entries(decision).filter(([name, value]) => value !== null && !skipped.has(name));
  return h("div", { class: "details" },
    h("dl", {}, fields.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(value))))),
    decision.protocol === "http" && decision.host ? h("p", {}, h("a", { href: again(decision) }, "What if it came again?")) : null);
}

// One line, for the overview.
export const brief = (decision) => h("li", {}, clock(decision.time), " ", marks(decision), " ", h("code", {}, decision.host ?? "–"),
  decision.topic ? h("span", { class: "soft" }, ` ${decision.topic.replace("persistent://", "")}`) : null);
