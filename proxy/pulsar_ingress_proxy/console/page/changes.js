// What changed with each generation, and conflicts.

import { get } from "./api.js";
import { conflicts } from "./book.js";
import { badge, byId, clock, empty, h, show, table } from "./dom.js";

export async function load() {
  const [{ generations }, findings] = await Promise.all([get("generations"), get("findings")]);
  show(byId("generations"), generations, () => h("ol", { class: "timeline" }, generations.map(generation)));
  show(byId("findings"), findings, render);
}

// Lines that begin with the same subject stand under it.
export function grouped(lines) {
  const groups = [];
  for (const line of lines) {
    const [subject, ...rest] = line.split(": ");
    if (groups.at(-1)?.subject !== subject) groups.push({ subject, texts: [] });
    groups.at(-1).texts.push(rest.join(": "));
  }
  return h("dl", { class: "groups" }, groups.map(({ subject, texts }) => [h("dt", {}, subject), texts.map((text) => h("dd", {}, text))]));
}

function generation({ generation: number, time, cause, changes, omitted }) {
  return h("li", {},
    h("p", {}, h("b", {}, `Generation ${number}`), " ", badge(cause), " ", h("span", { class: "soft" }, clock(time))),
    changes.length ? grouped(changes)
      : h("p", { class: "soft" }, cause === "start" ? "The first of this run." : "The same rules and addresses."),
    omitted ? h("p", { class: "soft" }, `and ${omitted} more`) : null);
}

function render({ discovers, kinds, conflicts: found, warnings }) {
  return [
    conflicts(found) ?? empty("No conflicts", discovers.length ? "All that was found fits together." : "Discovery is off: the config alone speaks."),
    warnings.length ? h("div", { class: "todo" }, h("h4", {}, "Warnings about the config"), h("ul", {}, warnings.map((warning) => h("li", {}, warning)))) : null,
    kinds.length ? table("Discovery", [{ text: "kind" }, { text: "known as it is" }],
      kinds.map(({ kind, synced }) => [kind, synced ? badge("yes", "good") : badge("no", "bad")])) : null,
  ];
}
