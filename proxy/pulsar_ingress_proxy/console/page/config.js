// The config in force, key by key, and where each is set.

import { get } from "./api.js";
import { byId, count, empty, h, show, table } from "./dom.js";

const MOST = 500;
let latest = null;
let known = "";

export function start() {
  byId("config-find").addEventListener("input", render);
  byId("config-set").addEventListener("change", render);
}

// Asks only if it can have changed: a config may have thousands of keys.
export async function load(status) {
  const now = JSON.stringify([status?.startedAt, status?.generation, status?.reloadProblem]);
  if (status && known === now) return;
  latest = await get("config");
  known = now;
  render();
}

function render() {
  if (!latest) return;
  const { settings, file, generation, reloadProblem } = latest;
  const name = file?.split("/").at(-1) ?? "config";
  const wanted = byId("config-find").value.trim().toLowerCase(), isSetOnly = byId("config-set").checked;
  const found = settings.filter((setting) => !(isSetOnly && setting.source === "default" && !setting.pending)
    && (!wanted || `${setting.key} ${text(setting.value)} ${by(setting, name)}`.toLowerCase().includes(wanted)));
  const set = settings.filter(({ source }) => source !== "default").length;
  byId("config-tally").textContent = wanted || isSetOnly ? `${count(found.length)} of ${count(settings.length)} keys`
    : `${count(settings.length)} keys, ${count(set)} of them set`;
  show(byId("config-problem"), reloadProblem, () => (reloadProblem
    ? h("div", { class: "todo" }, h("h3", {}, "The newest config is not in force"), h("ul", {}, reloadProblem.split("\n").map((line) => h("li", {}, line)))) : null));
  show(byId("config-content"), [found, file, generation, wanted], () => (found.length
    ? [table(`Generation ${generation}${file ? `, from ${file}` : ""}`, [{ text: "key", kind: "setting" }, { text: "value", kind: "name" }, { text: "set by", kind: "by" }],
      found.slice(0, MOST).map((setting) => [h("code", {}, setting.key), value(setting.value), source(setting, name, file)])),
    found.length > MOST ? h("p", { class: "soft" }, `and ${count(found.length - MOST)} more: search for them`) : null]
    : empty("No key matches", `None of ${count(settings.length)} keys has “${wanted}” in its name, value or source.`)));
}

const by = ({ source: kind, line, variable }, name) => (kind === "file" ? `${name}${line ? `:${line}` : ""}` : kind === "environment" ? variable : "default");

function source(setting, name, file) {
  const pending = setting.pending ? h("p", { class: "soft small" }, "a new value takes effect with the next start") : null;
  if (setting.source === "default") return [h("span", { class: "soft small" }, "default"), pending];
  return [h("code", { title: setting.source === "file" ? file : "a variable of the environment" }, by(setting, name)), pending];
}

const text = (given) => (given === null ? "unset" : Array.isArray(given) ? "empty" : String(given));
const value = (given) => (given === null || Array.isArray(given) ? h("span", { class: "soft small" }, text(given)) : h("code", {}, given === "" ? "\"\"" : text(given)));
