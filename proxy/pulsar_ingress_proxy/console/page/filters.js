// The filters of decisions: in the page's URL, so that they can be linked, and in the form.

import { get } from "./api.js";
import { byId, h, show } from "./dom.js";

const NAMES = ["only", "find", "kind", "protocol", "ingress", "listener", "rule", "missReason", "status"];
const TYPING = 250;  // milliseconds without a key

let filter = {};
let unknown = [];  // names in the page's URL that are no filters
let fixed = {};  // the choices that the page has from the start, by filter
let choices = { ingress: [], listener: [], missReason: [], status: [] };

export const current = () => filter;
export const unknownNames = () => unknown;

// The link to the decisions that these filters show.
export function linked(wanted) {
  const query = new URLSearchParams(NAMES.filter((name) => wanted[name]).map((name) => [name, wanted[name]]));
  return `#/decisions${query.size ? `?${query}` : ""}`;
}

// Calls back when somebody has changed a filter.
export function start(changed) {
  fixed = Object.fromEntries(selects().map((select) => [select.name, [...select.options].map(({ value }) => value).filter(Boolean)]));
  let typing = null;
  const change = (wanted, isTyped = false) => {
    clearTimeout(typing);
    const link = linked(wanted);
    if (link === linked(filter) && !unknown.length) return;
    // All that is typed is one step back.
    if (isTyped && filter.find && wanted.find) history.replaceState(null, "", link);
    else history.pushState(null, "", link);
    read(wanted);
    changed();
  };
  const typed = (isTyped) => change({ ...filter, find: byId("find").value.trim() }, isTyped);
  byId("find").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => typed(true), TYPING);
  });
  byId("find").addEventListener("change", () => typed(true));
  for (const button of only()) button.addEventListener("click", () => change({ ...filter, only: button.dataset.only }));
  for (const select of selects()) select.addEventListener("change", () => change({ ...filter, [select.name]: select.value }));
  byId("clear").addEventListener("click", () => {
    change({});
    byId("find").focus();
  });
  read({});
}

// Takes filters over, as from the page's URL: also values that the sidecar will refuse.
export function read(wanted) {
  filter = Object.fromEntries(NAMES.filter((name) => wanted[name]).map((name) => [name, wanted[name]]));
  unknown = Object.keys(wanted).filter((name) => wanted[name] && !NAMES.includes(name));
  if (byId("find").value.trim() !== (filter.find ?? "")) byId("find").value = filter.find ?? "";
  for (const button of only()) button.setAttribute("aria-pressed", String(button.dataset.only === (filter.only ?? "")));
  byId("clear").hidden = !Object.keys(filter).length && !unknown.length;
  offer();
}

export async function load() {
  choices = await get("decisions/choices");
  offer();
}

const only = () => document.querySelectorAll("[data-only]");
const selects = () => [...document.querySelectorAll(".filters select")];

// What can be chosen, and what is, even if nothing has it any more.
function offer() {
  const known = { ...fixed, ...choices, status: [...new Set(choices.status.map((code) => `${code[0]}xx`)), ...choices.status] };
  for (const select of selects()) {
    const chosen = filter[select.name] ?? "";
    const values = known[select.name];
    const all = !chosen || values.includes(chosen) ? values : [...values, chosen];
    show(select, all, () => [h("option", { value: "" }, "any"), ...all.map((value) => h("option", {}, value))]);
    select.value = chosen;
    select.classList.toggle("set", chosen !== "");
  }
}
