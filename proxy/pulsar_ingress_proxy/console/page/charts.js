// Small charts, drawn as wide as there is room, so that their letters stay as large as all others.

import { h, ms, percent, svg } from "./dom.js";

const HEIGHT = 116;
const LEFT = 56, RIGHT = 4, TOP = 8, BOTTOM = 18;
const WINDOWS = [5, 15, 30];  // minutes

export class Chart {
  constructor({ title, series, value, top, at }) {
    Object.assign(this, { series, value, top, at, points: [], seconds: 5 });
    this.now = h("b", {});
    this.readout = h("span", { class: "soft" });
    this.canvas = h("div", { class: "canvas" });
    const keys = series.map(({ name, kind }) => h("li", {}, h("i", { class: `key ${kind}` }), name));
    this.element = h("figure", { class: "chart" },
      h("figcaption", {}, h("h3", {}, title), this.now, series.length > 1 ? h("ul", { class: "keys" }, keys) : null, this.readout),
      this.canvas);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.canvas.addEventListener("pointerleave", () => this.#leave());
  }

  set(points, seconds) {
    this.points = points;
    this.seconds = seconds;
    this.draw();
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!width) return;
    const last = this.points.at(-1);
    this.now.textContent = last ? this.value(last) : "–";
    const end = last ? Date.parse(last.time) : Date.now();
    const spanned = last ? (end - Date.parse(this.points[0].time)) / 60000 : 0;
    const minutes = WINDOWS.find((window) => spanned <= window) ?? WINDOWS.at(-1);
    const highest = Math.max(0, ...this.points.flatMap((point) => this.series.map(({ of }) => of(point) ?? 0)));
    const top = this.top ?? nice(highest);
    this.x = (point) => width - RIGHT - ((end - Date.parse(point.time)) / 60000 / minutes) * (width - LEFT - RIGHT);
    this.y = (value) => HEIGHT - BOTTOM - (Math.min(value, top) / top) * (HEIGHT - TOP - BOTTOM);
    this.bar = ((width - LEFT - RIGHT) * this.seconds) / 60 / minutes;
    const grid = [0, top / 2, top].flatMap((value) => [
      svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: this.y(value), y2: this.y(value) }),
      text(this.at(value), LEFT - 5, this.y(value) + 4, "end"),
    ]);
    grid.push(text(`−${minutes} min`, LEFT, HEIGHT - 3, "start"), text("now", width - RIGHT, HEIGHT - 3, "end"));
    this.cross = svg("line", { class: "cross", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    const label = last ? `${this.element.querySelector("h3").textContent}: ${this.value(last)} now, over the last ${minutes} minutes` : "No data yet";
    const drawing = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": label }, ...grid);
    drawing.append(...this.series.map((one) => (one.stacked ? this.#bars(one) : this.#line(one))), this.cross);
    this.canvas.replaceChildren(drawing);
  }

  #line({ of, kind }) {
    let path = "", pen = "M";
    for (const point of this.points) {
      const value = of(point);
      if (value === null) { pen = "M"; continue; }
      // A point by itself is still to be seen.
      path += pen === "M" ? `M${this.x(point).toFixed(1)},${this.y(value).toFixed(1)}h.01` : `L${this.x(point).toFixed(1)},${this.y(value).toFixed(1)}`;
      pen = "L";
    }
    return svg("path", { class: `line ${kind}`, d: path });
  }

  #bars({ of, under, kind }) {
    const wide = Math.max(1, this.bar - (this.bar > 3 ? 1 : 0));
    const path = this.points.map((point) => {
      const low = this.y(under ? under(point) : 0), high = this.y(of(point));
      return low - high < 0.05 ? "" : `M${(this.x(point) - wide).toFixed(1)},${low.toFixed(1)}V${high.toFixed(1)}h${wide.toFixed(1)}V${low.toFixed(1)}z`;
    });
    return svg("path", { class: `bars ${kind}`, d: path.join("") });
  }

  #point(event) {
    if (!this.points.length || !this.cross) return;
    const at = event.clientX - this.canvas.getBoundingClientRect().left;
    const nearest = this.points.reduce((best, point) => (Math.abs(this.x(point) - at) < Math.abs(this.x(best) - at) ? point : best));
    this.cross.setAttribute("x1", this.x(nearest));
    this.cross.setAttribute("x2", this.x(nearest));
    this.cross.setAttribute("visibility", "visible");
    this.readout.textContent = `${new Date(nearest.time).toLocaleTimeString("en-GB")}: ${this.value(nearest)}`;
  }

  #leave() {
    this.cross?.setAttribute("visibility", "hidden");
    this.readout.textContent = "";
  }
}

const text = (words, x, y, anchor) => {
  const element = svg("text", { x, y, "text-anchor": anchor });
  element.textContent = words;
  return element;
};

function nice(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

const rate = (number) => (point) => number(point) / point.seconds;
const shortly = (value) => (value >= 1000 ? `${+(value / 1000).toFixed(1)}k` : `${+value.toFixed(value < 1 ? 2 : 1)}`);

export const charts = () => ({
  lookups: new Chart({
    title: "Lookups a second",
    series: [
      { name: "hits", kind: "hit", stacked: true, of: rate((point) => point.hits) },
      { name: "misses", kind: "miss", stacked: true, under: rate((point) => point.hits), of: rate((point) => point.hits + point.misses) },
    ],
    value: (point) => shortly((point.hits + point.misses) / point.seconds),
    at: shortly,
  }),
  ratio: new Chart({
    title: "Hit ratio",
    top: 1,
    series: [{ name: "hits", kind: "hit", of: (point) => (point.hits + point.misses ? point.hits / (point.hits + point.misses) : null) }],
    value: (point) => percent(point.hits, point.hits + point.misses),
    at: (value) => `${Math.round(100 * value)}%`,
  }),
  latency: new Chart({
    title: "Latency of lookups",
    series: [
      { name: "p99", kind: "second", of: (point) => point.p99Ms },
      { name: "p50", kind: "hit", of: (point) => point.p50Ms },
    ],
    value: (point) => (point.p50Ms === null ? "–" : `${ms(point.p50Ms)}, p99 ${ms(point.p99Ms)}`),
    at: (value) => (value === 0 ? "0" : ms(value).replace(/\.0 /, " ")),
  }),
});
