// What would become of a request, rule by rule.

import { Away, post } from "./api.js";
import { badge, byId, h } from "./dom.js";
import { sockets } from "./doors.js";

const SECRET = /^(authorization|proxy-authorization|cookie|set-cookie|x-api-key|x-auth-token)$/i;
const WORDS = { decided: "decides", refused: "refuses", "passed-over": "passed over", "not-reached": "not reached" };
const KINDS = { decided: "good", refused: "bad", "passed-over": "", "not-reached": "faint" };
const ABOUT = {
  query: "listenerName in the URL", header: "X-Pulsar-ListenerName", bind: "the socket's listener", ingress: "the ingress by host", default: "lookupListenerName",
};

export function start() {
  byId("question").addEventListener("submit", (event) => {
    event.preventDefault();
    explain();
  });
  byId("question").addEventListener("reset", () => {
    byId("verdict").replaceChildren();
    byId("question-problem").textContent = "";
  });
}

export const load = () => sockets(byId("bind"));

// A decision that was made, as a question.
export function prefill({ scheme, host, topic, method, clientNamed, clientNamedBy, redirectFrom, kind }) {
  const path = topic && kind === "lookup" ? `/lookup/v2/topic/${topic.replace("://", "/")}` : "/";
  const named = clientNamed && clientNamedBy === "query" ? `?listenerName=${encodeURIComponent(clientNamed)}` : "";
  byId("url").value = `${scheme ?? "http"}://${host}${path}${named}`;
  byId("method").value = method === "HEAD" ? "HEAD" : "GET";
  byId("headers").value = clientNamed && clientNamedBy === "header" ? `X-Pulsar-ListenerName: ${clientNamed}` : "";
  byId("location").value = redirectFrom ?? "";
  explain();
}

async function explain() {
  const problem = byId("question-problem");
  problem.textContent = "";
  byId("url").removeAttribute("aria-invalid");
  try {
    const verdict = await post("what-if", question());
    byId("verdict").replaceChildren(...rendered(verdict));
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
    url: byId("url").value.trim(),
    method: byId("method").value,
    headers,
    bind: byId("bind").value || null,
    location: byId("location").value.trim() || null,
    trusted: byId("trusted").checked,
  };
}

function rendered(verdict) {
  const { listener, rule, ingress, refusal, reason, upstream, route, location, steps, shadow, kind, generation } = verdict;
  const headline = refusal ? `Refused with ${refusal.status}` : listener ? `Listener ${listener}` : "No listener: a miss";
  return [
    h("div", { class: `headline ${refusal ? "bad" : listener ? "good" : "bad"}` },
      h("h3", { id: "verdict-title" }, headline),
      h("p", {}, refusal ? `${refusal.code}: ${refusal.text}` : listener ? `by rule ${rule}${ingress ? `, through ingress ${ingress}` : ""}` : `${reason}: the request is forwarded as it is`),
      h("p", { class: "soft small" }, `${kind === "lookup" ? "A lookup" : kind === "(refused)" ? "Its head cannot be read" : `No lookup, but ${kind}`}; generation ${generation}`)),
    shadow ? h("p", { class: "warn" }, "shadow: true: this would be recorded, and nothing changed.") : null,
    steps.length ? h("h4", {}, "Rule by rule") : null,
    steps.length ? h("ol", { class: "steps" }, steps.map((step, place) => h("li", { class: step.outcome },
      h("span", { class: "number", "aria-hidden": "true" }, String(place + 1)),
      h("div", {}, h("p", {}, h("b", {}, step.rule), h("span", { class: "soft small" }, ` ${ABOUT[step.rule]} `), badge(WORDS[step.outcome], KINDS[step.outcome])), h("p", { class: "small" }, step.text))))) : null,
    h("h4", {}, "Where it goes"),
    h("p", {}, upstream ? h("code", { class: "name" }, upstream) : "Nowhere", h("span", { class: "soft small block" }, route)),
    ...(location ? redirect(location) : []),
  ].filter(Boolean);
}

function redirect({ from, to, action, why }) {
  return [
    h("h4", {}, "The redirect"),
    h("p", {}, badge(action, action === "refused" ? "bad" : "redirect"), h("span", { class: "soft small" }, ` ${why}`)),
    h("dl", { class: "fromto" },
      h("dt", {}, "broker says"), h("dd", {}, h("code", { class: "name" }, from)),
      h("dt", {}, action === "followed" ? "sidecar asks" : "client gets"), h("dd", {}, to ? h("code", { class: "name" }, to) : "502")),
  ];
}
