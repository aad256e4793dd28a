// Sockets, ingresses and listeners.

import { get } from "./api.js";
import { badge, byId, count, empty, h, show, table } from "./dom.js";
import { linked } from "./filters.js";

export async function load() {
  show(byId("ingresses-content"), await get("ingresses"), ({ sockets, ingresses, listeners }) => [
    ingresses.length ? listed(ingresses) : empty("No ingress is known",
      "Lookups have a listener only where a socket or lookupListenerName gives one. Add ingresses to the config, or annotate them in the cluster."),
    h("div", { class: "two" },
      table("Sockets", [{ text: "address" }, { text: "scheme" }, { text: "listener" }],
        sockets.map(({ address, scheme, listener }) => [h("code", {}, address), scheme, listener ? badge(listener, "listener") : h("span", { class: "soft" }, "by ingress")])),
      table("Listeners", [{ text: "name" }, { text: "part" }],
        listeners.map(({ name, internal, default: isDefault }) => [h("a", { class: "badge listener", href: linked({ listener: name }), title: "Its decisions" }, name),
          [internal ? "used by the sidecar to reach brokers" : "", isDefault ? "default" : ""].filter(Boolean).join("; ") || h("span", { class: "soft" }, "clients")]))),
  ]);
}

function listed(ingresses) {
  const heads = [{ text: "ingress", kind: "name" }, { text: "hosts", kind: "name" }, { text: "listener" }, { text: "lets through" },
    { text: "clients may name" }, { text: "source" }, { text: "hits", kind: "n" }, { text: "misses", kind: "n" }];
  const names = (given, none) => (given === null ? h("span", { class: "soft" }, none) : given.join(", ") || "nothing");
  return table("Ingresses", heads, ingresses.map((ingress) => [
    ingress.name,
    h("ul", { class: "plain" }, ingress.hosts.map((host) => h("li", {}, h("code", {}, host)))),
    badge(ingress.listener, "listener"),
    names(ingress.expose, "everything"),
    names(ingress.allowedListeners, "any but internal"),
    badge(ingress.source, ingress.source),
    counted(ingress.hits, { only: "hit", ingress: ingress.name }),
    counted(ingress.misses, { only: "miss", ingress: ingress.name }, "bad"),
  ]));
}

// A number that leads to what it counts.
const counted = (number, of, kind = "") => (number ? h("a", { class: kind, href: linked(of) }, count(number)) : "0");

export async function sockets(select) {
  const { sockets: all } = await get("ingresses");
  const web = all.filter(({ scheme }) => scheme.startsWith("http"));
  show(select, web, () => [h("option", { value: "" }, "any that leaves it to the ingress"),
    ...web.map(({ address, listener }) => h("option", { value: address }, listener ? `${address} (${listener})` : address))]);
}
