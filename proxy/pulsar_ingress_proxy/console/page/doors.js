// Sockets, ingresses and listeners.

import { get } from "./api.js";
import { badge, byId, count, empty, h, show, table } from "./dom.js";

export async function load() {
  show(byId("doors-content"), await get("doors"), ({ sockets, doors, listeners }) => [
    doors.length ? ingresses(doors) : empty("No ingress is known",
      "Lookups have a listener only where a socket or lookupListenerName gives one. Add ingresses to the config, or annotate them in the cluster."),
    h("div", { class: "two" },
      table("Sockets", [{ text: "address" }, { text: "scheme" }, { text: "listener" }],
        sockets.map(({ address, scheme, listener }) => [h("code", {}, address), scheme, listener ? badge(listener, "listener") : h("span", { class: "soft" }, "by ingress")])),
      table("Listeners", [{ text: "name" }, { text: "part" }],
        listeners.map(({ name, internal, default: isDefault }) => [badge(name, "listener"),
          [internal ? "how the sidecar dials brokers" : "", isDefault ? "where no rule decides" : ""].filter(Boolean).join("; ") || h("span", { class: "soft" }, "clients")]))),
  ]);
}

function ingresses(doors) {
  const heads = [{ text: "ingress", kind: "name" }, { text: "hosts", kind: "name" }, { text: "listener" }, { text: "lets through" },
    { text: "clients may name" }, { text: "source" }, { text: "hits", kind: "n" }, { text: "misses", kind: "n" }];
  const listed = (names, none) => (names === null ? h("span", { class: "soft" }, none) : names.join(", ") || "nothing");
  return table("Ingresses", heads, doors.map((door) => [
    door.name,
    h("ul", { class: "plain" }, door.hosts.map((host) => h("li", {}, h("code", {}, host)))),
    badge(door.listener, "listener"),
    listed(door.expose, "everything"),
    listed(door.allowedListeners, "any but internal"),
    badge(door.source, door.source),
    count(door.hits),
    door.misses ? h("b", { class: "bad" }, count(door.misses)) : "0",
  ]));
}

export async function sockets(select) {
  const { sockets: all } = await get("doors");
  const web = all.filter(({ scheme }) => scheme.startsWith("http"));
  show(select, web, () => [h("option", { value: "" }, "any that leaves it to the ingress"),
    ...web.map(({ address, listener }) => h("option", { value: address }, listener ? `${address} (${listener})` : address))]);
}
