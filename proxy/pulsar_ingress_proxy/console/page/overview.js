// The sidecar at a glance: is it well, what is it doing, what has changed, what should somebody look at?

import { get } from "./api.js";
import { grouped } from "./changes.js";
import { charts } from "./charts.js";
import { brief } from "./decisions.js";
import { ago, badge, byId, clock, count, empty, h, ms, percent, show, span } from "./dom.js";
import { linked } from "./filters.js";

const RECENT = 60;  // figures of five minutes
const CHANGES = 4;
const WARNINGS = 4;
let drawn = null;

export async function load() {
  const [status, figures, findings, leaks, misses] = await Promise.all([
    get("status"), get("figures"), get("findings"), get("decisions?only=leak&limit=3"), get("decisions?only=miss&limit=6"),
  ]);
  // One that leaks is never a miss: it has a listener.
  render(status, figures, findings, [...leaks.decisions, ...misses.decisions]);
}

function render(status, { figures, seconds }, findings, remarkable) {
  show(byId("attention"), attention(status, findings), (lines) => lines.length
    ? h("div", { class: "todo" }, h("h3", {}, "Needs attention"), h("ul", {}, lines.map(({ text, link }) =>
      h("li", {}, text, link ? [" ", h("a", { href: link }, "more")] : null))))
    : h("div", { class: "todo calm" }, h("p", {}, h("b", {}, "No action needed."), " Config, discovery and address book agree.")));

  show(byId("tiles"), tiles(status, figures), (all) => all.map(({ name, value, more, kind, of }) =>
    h("div", {}, h("dt", {}, h("a", { href: linked(of) }, name)), h("dd", {}, h("b", { class: kind }, value), h("span", { class: "soft" }, more)))));

  if (!drawn) {
    drawn = charts();
    byId("charts").append(...Object.values(drawn).map((chart) => chart.element));
  }
  for (const chart of Object.values(drawn)) chart.set(figures, seconds);

  show(byId("newest"), [status.generation, status.changedAt, status.changedBy, status.changes], () => [
    h("p", {}, h("b", {}, `Generation ${status.generation}`), " by ", status.changedBy, " at ", clock(status.changedAt)),
    status.changes.length
      ? [grouped(status.changes.slice(0, CHANGES)), status.changes.length > CHANGES ? h("p", { class: "soft" }, `and ${status.changes.length - CHANGES} more`) : null]
      : h("p", { class: "soft" }, "In force since the start."),
    h("p", {}, h("a", { href: "#/changes" }, "All changes")),
  ]);

  show(byId("remarkable"), remarkable, (decisions) => decisions.length
    ? [h("ul", { class: "lines" }, decisions.map(brief)), h("p", {}, h("a", { href: "#/decisions?only=leak,miss" }, "All leaks and misses"))]
    : empty("None", "Every lookup that is remembered was a hit, and no address of the inside went out."));
}

function tiles(status, figures) {
  const recent = figures.slice(-RECENT);
  const sum = (name) => recent.reduce((total, figure) => total + figure[name], 0);
  const last = recent.findLast((figure) => figure.p50Ms !== null);
  const { counts } = status;
  const lookups = counts.hits + counts.misses;
  const lately = `${count(sum("misses"))} in the last 5 min`;
  return [
    { name: "Hit ratio", of: { kind: "lookup" }, value: percent(counts.hits, lookups), more: lookups ? `of ${count(lookups)} lookups` : "no lookups yet" },
    { name: "Misses", of: { only: "miss" }, value: count(counts.misses), more: lately, kind: counts.misses ? "bad" : "" },
    { name: "Redirects", of: { only: "redirect" }, value: count(counts.redirects), more: `${count(sum("redirects"))} in the last 5 min` },
    { name: "Leaks", of: { only: "leak" }, value: count(counts.leaks), more: `${count(sum("leaks"))} in the last 5 min`, kind: counts.leaks ? "bad" : "" },
    { name: "Lookup, p50", of: { kind: "lookup" }, value: ms(last?.p50Ms ?? null), more: `p99 ${ms(last?.p99Ms ?? null)}` },
    { name: "Failures", of: { only: "failure" }, value: count(counts.failures), kind: counts.failures ? "bad" : "",
      more: counts.unread ? `and ${count(counts.unread)} refused unread` : `of ${count(counts.requests)} requests` },
  ];
}

function attention(status, findings) {
  const lines = [];
  if (!status.ready) lines.push({ text: `Not ready: ${status.notReady}` });
  if (status.reloadProblem) lines.push({ text: `The newest config is not in force: ${status.reloadProblem}` });
  if (status.shadow) lines.push({ text: "shadow: true: decisions are counted and recorded, and nothing is changed." });
  for (const { kind, synced } of findings.kinds) if (!synced) lines.push({ text: `Discovery does not know ${kind} as it is now.`, link: "#/changes" });
  if (findings.conflicts.length) lines.push({ text: `${findings.conflicts.length} ${findings.conflicts.length === 1 ? "conflict" : "conflicts"} found by discovery.`, link: "#/changes" });
  for (const warning of findings.warnings.slice(0, WARNINGS)) lines.push({ text: warning });
  if (findings.warnings.length > WARNINGS) lines.push({ text: `${findings.warnings.length - WARNINGS} more warnings about the config.`, link: "#/changes" });
  return lines;
}

export function pills(status, isLive) {
  byId("identity").textContent = `${status.cluster} · ${status.sidecar} · ${status.version}`;
  show(byId("source"), status.source, (source) => (source ? ["Config: ", h("a", { href: "#/config" }, source)] : null));
  show(byId("pills"), [status.ready, status.shadow, status.generation, status.changedAt, isLive, Math.floor(status.uptimeSeconds / 60)], () => [
    h("li", {}, badge(status.ready ? "ready" : "not ready", status.ready ? "good" : "bad")),
    status.shadow ? h("li", {}, badge("shadow", "warn")) : null,
    h("li", { title: `since ${status.changedAt}` }, badge(`generation ${status.generation}`)),
    h("li", { title: `started ${ago(status.startedAt)}` }, badge(`up ${span(status.uptimeSeconds)}`)),
    h("li", {}, badge(isLive ? "live" : "away", isLive ? "good dot" : "bad dot")),
  ]);
}
