// Elements without markup in strings: what comes from outside is only ever text.

export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

export function svg(tag, properties = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const byId = (id) => document.getElementById(id);

// Puts new content in place of the old, unless it would be the same: what is being read should not flicker.
const shown = new WeakMap();
export function show(element, data, render) {
  const key = JSON.stringify(data);
  if (shown.get(element) === key) return;
  shown.set(element, key);
  element.replaceChildren(...[render(data)].flat(Infinity).filter(Boolean));
}

export const badge = (text, kind = "", title = null) => h("span", { class: `badge ${kind}`, title }, text);

export const empty = (title, text) => h("div", { class: "empty" }, h("p", {}, h("b", {}, title)), h("p", { class: "soft" }, text));

export function table(caption, heads, rows) {
  return h("div", { class: "scroll" },
    h("table", { class: "cards" },
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col", class: head.kind }, head.text)))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, place) => place === 0
        ? h("th", { scope: "row", class: heads[0].kind }, cell)
        : h("td", { class: heads[place].kind, "data-label": heads[place].text }, cell)))))));
}

// Numbers and times.

export const count = (value) => value.toLocaleString("en");
export const percent = (part, whole) => (whole ? `${floored((100 * part) / whole)}%` : "–");
// 99.96% is not 100%: the last misses are those that matter.
const floored = (value) => (value === 100 ? "100" : (Math.floor(value * 10) / 10).toFixed(1));
export const ms = (value) => (value === null ? "–" : value < 10 ? `${value.toFixed(1)} ms` : value < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`);

export function clock(iso) {
  const text = new Date(iso).toLocaleTimeString("en-GB");
  return h("time", { datetime: iso, title: iso }, text);
}

export function ago(iso, now = Date.now()) {
  const seconds = Math.max(0, (now - Date.parse(iso)) / 1000);
  return seconds < 2 ? "just now" : `${span(seconds)} ago`;
}

export function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}
