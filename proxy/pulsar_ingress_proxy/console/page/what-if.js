// The decision on a request that nobody has sent, rule by rule.

import { Away, get, post } from "./api.js";
import { badge, byId, h } from "./dom.js";
import { sockets } from "./ingresses.js";

const SECRET = /auth|cookie|token|secret|password|api-?key/i;
const WORDS = { decided: "decides", refused: "refuses", "passed-over": "passed over", "not-reached": "not reached" };
const KINDS = { decided: "good", refused: "bad", "passed-over": "", "not-reached": "faint" };
const ABOUT = {
  query: "listenerName in the URL", header: "X-Pulsar-ListenerName", bind: "the socket's listener", ingress: "the ingress by host", default: "lookupListenerName",
};

const TOPIC = "/lookup/v2/topic/persistent/public/default/orders";
let isPrefilled = false;

export function start() {
  byId("question").addEventListener("submit", (event) => {
    event.preventDefault();
    explain();
  });
  byId("question").addEventListener("reset", () => {
    history.replaceState(null, "", "#/what-if");
    byId("verdict").replaceChildren();
    byId("question-problem").textContent = "";
  });
}

export const load = () => sockets(byId("bind"));

// With a question in the page's URL, its answer; else a form that has an example.
export async function entered(asked) {
  await load();
  if (asked.has("url")) {
    for (const name of ["url", "bind", "location", "body"]) byId(name).value = asked.get(name) ?? "";
    byId("method").value = asked.get("method") ?? "GET";
    byId("headers").value = asked.getAll("header").join("\n");
    byId("trusted").checked = asked.get("trusted") !== "false";
    await explain();
  } else if (!isPrefilled && !byId("url").value) {
    await example();
  }
  isPrefilled = true;
}

// The URL of a question.
function linked({ headers = [], trusted = true, ...fields }) {
  const asked = new URLSearchParams(Object.entries(fields).filter(([name, value]) => value && (name !== "method" || value !== "GET")));
  for (const { name, value } of headers) asked.append("header", `${name}: ${value}`);
  if (!trusted) asked.set("trusted", "false");
  return `#/what-if?${asked}`;
}

// The URL that asks about a recorded decision.
export function again({ scheme, host, topic, method, clientNamed, clientNamedBy, redirectFrom, kind }) {
  const path = topic && kind === "lookup" ? `/lookup/v2/topic/${topic.replace("://", "/")}` : "/";
  const named = clientNamed && clientNamedBy === "query" ? `?listenerName=${encodeURIComponent(clientNamed)}` : "";
  return linked({
    url: `${scheme ?? "http"}://${host}${path}${named}`,
    method: method === "HEAD" ? "HEAD" : "GET",
    headers: clientNamed && clientNamedBy === "header" ? [{ name: "X-Pulsar-ListenerName", value: clientNamed }] : [],
    location: redirectFrom,
  });
}

// A lookup through the first ingress, and what the first broker of the address book may answer.
async function example() {
  const [{ ingresses, listeners }, { brokers: [broker] }] = await Promise.all([get("ingresses"), get("brokers")]);
  if (byId("question").contains(document.activeElement) || byId("url").value) return; // someone is filling in the form already
  const hosts = ingresses.filter(({ expose }) => !expose || expose.includes("lookup")).flatMap((ingress) => ingress.hosts);
  const host = hosts.find((name) => !name.includes("*")) ?? hosts[0]?.replace("*", "any") ?? "pulsar.example.com";
  byId("url").value = `https://${host}${TOPIC}`;
  if (!broker) return;
  const filled = (text) => text.replace(/\{\w+(?:\+(\d+))?\}/g, (_, added) => added ?? "0");
  const internal = listeners.find((listener) => listener.internal)?.name;
  const at = (scheme, port) => filled(broker.addresses.find(({ listener, url }) => listener === internal && url.startsWith(`${scheme}:`))?.url
    ?? `${scheme}://${broker.broker.replace(/:\d+$/, "")}:${port}`);
  byId("location").value = `${at("http", 8080)}${TOPIC}?authoritative=true`;
  byId("body").value = JSON.stringify({ brokerUrl: at("pulsar", 6650), httpUrl: at("http", 8080), nativeUrl: at("pulsar", 6650) }, null, 1);
}

async function explain() {
  const problem = byId("question-problem");
  problem.textContent = "";
  byId("url").removeAttribute("aria-invalid");
  try {
    const asked = question();
    const verdict = await post("what-if", asked);
    history.replaceState(null, "", linked(asked));
    byId("verdict").replaceChildren(...rendered(verdict, linked(asked)));
  } catch (fault) {
    byId("verdict").replaceChildren();
    problem.textContent = fault instanceof Away ? "The sidecar does not answer." : fault.message.replace(/^bad-question: /, "");
    byId("url").setAttribute("aria-invalid", "true");
  }
}

function question() {
  const headers = byId("headers").value.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
    const [name, ...rest] = line.split(":");
    if (!rest.length) throw new Error(`“${line.split(/\s/)[0]}” is not a header: write Name: value`);
    return { name: name.trim(), value: SECRET.test(name.trim()) ? "hidden" : rest.join(":").trim() };
  });
  return {
    url: withoutTokens(byId("url").value.trim()),
    method: byId("method").value,
    headers,
    bind: byId("bind").value || null,
    location: withoutTokens(byId("location").value.trim()) || null,
    body: withoutTokens(byId("body").value.trim()) || null,
    trusted: byId("trusted").checked,
  };
}

// The question stands in the page's URL, which is there to be shared: no credentials of a URL may.
function withoutTokens(text) {
  const decoded = (name) => {
    try { return decodeURIComponent(name); } catch { return name; }
  };
  return text.replace(/\/\/[^/?#@\s"]+@/g, "//")
    .replace(/([?&][^=&#\s"]*)=[^&#\s"]*/g, (all, name) => (/token|secret|password/i.test(decoded(name)) ? `${name}=hidden` : all));
}

function rendered(verdict, link) {
  const { listener, rule, ingress, refusal, reason, upstream, route, location, redirect, body, steps, suggestion, shadow, kind, generation } = verdict;
  const headline = refusal ? `Refused with ${refusal.status}` : listener ? `Listener ${listener}` : "No listener: a miss";
  return [
    h("div", { class: `headline ${refusal ? "bad" : listener ? "good" : "bad"}` },
      h("h3", { id: "verdict-title" }, headline),
      h("p", {}, refusal ? `${refusal.code}: ${refusal.text}` : listener ? `by rule ${rule}${ingress ? `, through ingress ${ingress}` : ""}` : `${reason}: the request is forwarded as it is`),
      h("p", { class: "soft small" }, `${kind === "lookup" ? "A lookup" : kind === "(refused)" ? "The request cannot be read" : `Not a lookup (${kind})`}; generation ${generation}; `,
        h("a", { href: link }, "link to this answer"))),
    shadow ? h("p", { class: "warn" }, "shadow: true: this is counted and recorded, and nothing is changed.") : null,
    suggestion ? h("h4", {}, "Suggested config") : null,
    suggestion ? h("pre", {}, h("code", {}, suggestion)) : null,
    steps.length ? h("h4", {}, "Rule by rule") : null,
    steps.length ? h("ol", { class: "steps" }, steps.map((step, place) => h("li", { class: step.outcome },
      h("span", { class: "number", "aria-hidden": "true" }, String(place + 1)),
      h("div", {}, h("p", {}, h("b", {}, step.rule), h("span", { class: "soft small" }, ` ${ABOUT[step.rule]} `), badge(WORDS[step.outcome], KINDS[step.outcome])), h("p", { class: "small" }, step.text))))) : null,
    h("h4", {}, "Where it goes"),
    h("p", {}, upstream ? h("code", { class: "name" }, upstream) : "Nowhere", h("span", { class: "soft small block" }, route)),
    ...(location ? redirected(location, redirect) : []),
    ...(body ? answer(body) : []),
  ].filter(Boolean);
}

function redirected({ from, to, action }, why) {
  return [
    h("h4", {}, "The redirect"),
    h("p", {}, badge(action, action === "refused" ? "bad" : "redirect"), h("span", { class: "soft small" }, ` ${why}`)),
    h("dl", { class: "fromto" },
      h("dt", {}, "broker says"), h("dd", {}, h("code", { class: "name" }, from)),
      h("dt", {}, action === "followed" ? "sidecar asks" : "client gets"), h("dd", {}, to ? h("code", { class: "name" }, to) : "502")),
  ];
}

function answer({ leak, why, keys }) {
  return [
    h("h4", {}, "The answer"),
    h("p", {}, leak ? [badge(`leak, ${leak}`, "bad"), " "] : null, h("span", { class: "soft small" }, why)),
    keys.map((key) => h("dl", { class: "fromto" },
      h("dt", {}, h("b", {}, key.key)), h("dd", {}, badge(key.leak ? `leak, ${key.action}` : key.action, key.leak ? "bad" : key.action === "kept" ? "" : "redirect")),
      h("dt", {}, "broker says"), h("dd", {}, key.from ? h("code", { class: "name" }, key.from) : "nothing"),
      h("dt", {}, "client gets"), h("dd", {}, key.to ? h("code", { class: "name" }, key.to) : key.action === "blocked" ? "502" : "nothing"))),
  ].flat();
}
