// Decisions as they are made.

import { get } from "./api.js";
import { badge, byId, clock, empty, h, ms } from "./dom.js";
import { again } from "./what-if.js";

const MOST = 200;
const HEADS = [["time", "time"], ["decision", "decision"], ["through", "name"], ["topic", "name"], ["answer", "answer"], ["took", "n took"]];

let body = null;
let isPaused = false;
let waiting = [];
let only = "";

export function start(stream) {
  for (const button of document.querySelectorAll("[data-only]")) {
    button.addEventListener("click", async () => {
      only = button.dataset.only;
      for (const other of document.querySelectorAll("[data-only]")) other.setAttribute("aria-pressed", String(other === button));
      await fill(stream);
    });
  }
  byId("pause").addEventListener("click", () => {
    isPaused = !isPaused;
    byId("pause").setAttribute("aria-pressed", String(isPaused));
    byId("pause").textContent = isPaused ? "Go on" : "Pause";
    byId("left-out").textContent = "";
    if (!isPaused) waiting.splice(0).forEach(add);
  });
}

// What is kept, and from there on the stream.
export async function fill(stream) {
  const { decisions, cursor } = await get(`decisions?limit=${MOST}${only ? `&only=${only}` : ""}`);
  waiting = [];
  body = null;
  byId("left-out").textContent = "";
  byId("decisions-content").replaceChildren(none());
  decisions.reverse().forEach(add);
  stream.open(only, cursor);
}

export function heard(decision) {
  if (!isPaused) return add(decision);
  waiting = [...waiting.slice(1 - MOST), decision];
  byId("left-out").textContent = `${waiting.length === MOST ? `${MOST} or more` : waiting.length} waiting`;
}

export function leftOut(number) {
  if (!isPaused) byId("left-out").textContent = `${number} more came at once than are shown`;
}

const none = () => {
  const what = { "": "lookups", miss: "misses", leak: "leaks", redirect: "redirects" }[only];
  return empty(`No ${what} yet`, "They appear here as they are decided.");
};

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
