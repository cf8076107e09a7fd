// Charts of the last minutes, drawn by hand. Each has its numbers in words too.
import { el, svg } from "./element.js";
import { clock, rate, span } from "./format.js";

/** Kept, as long as the daemon keeps them; a page of a young daemon shows less. */
const SECONDS = 900;
/** A little late is no gap; a long silence is. */
const GAP_MS = 3500;
/** Two pictures that are nearer to each other are of the same second. */
const SAME_MS = 500;

/** The last minutes: one value a second of each series; a second without a picture is a gap. */
export class History {
  constructor() { Object.assign(this, { points: [], shown: SECONDS }); }
  add(ms, values) {
    const last = this.points.at(-1);
    if (last?.ms === ms) return;
    if (last && ms - last.ms > GAP_MS) this.points.push({ ms: ms - 1000, values: null });
    this.points.push({ ms, values });
    while (this.points.length && ms - this.points[0].ms > SECONDS * 1000) this.points.shift();
  }
  /** Adds seconds that the page has not seen. */
  fill(points) {
    const all = [...this.points.filter((point) => point.values), ...points].sort((one, other) => one.ms - other.ms);
    this.points = [];
    for (const { ms, values } of all) if (!(ms - this.points.at(-1)?.ms < SAME_MS)) this.add(ms, values);
  }
  last() { return this.points.at(-1)?.values; }
  /** Seconds that are shown. */
  seconds() { return Math.min(this.shown, 60 * Math.ceil(Math.max(1, (this.points.at(-1)?.ms ?? 0) - (this.points[0]?.ms ?? 0)) / 60000)); }
  /** The points that are shown. */
  window() {
    const from = (this.points.at(-1)?.ms ?? 0) - this.seconds() * 1000;
    return this.points.filter(({ ms }) => ms >= from);
  }
}

/** Pieces without gaps. */
function pieces(points) {
  const all = [[]];
  for (const point of points) point.values ? all.at(-1).push(point) : all.push([]);
  return all.filter((piece) => piece.length);
}
/** A line through places, as far as it is drawn there. */
const path = (places, isDrawn = () => true) => places.map(([x, y], at) => (isDrawn(at) ? `${at && isDrawn(at - 1) ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}` : "")).join("");

/** The next round number. */
function ceiling(value) {
  if (value <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * size >= value) * size;
}

export function sparkline(node, history, of, series) {
  const [width, height] = [100, 30];
  const shown = history.window();
  const now = shown.at(-1)?.ms ?? 0;
  const values = shown.filter((point) => point.values).map(of);
  const top = Math.max(1e-9, ...values) * 1.1;
  const x = (ms) => width - ((now - ms) / (history.seconds() * 1000)) * width;
  const y = (value) => height - 1 - (value / top) * (height - 3);
  const parts = pieces(shown).flatMap((piece) => {
    const places = piece.map((point) => [x(point.ms), y(of(point))]);
    const line = path(places);
    return [
      svg("path", { class: `f${series}`, d: `${line}L${places.at(-1)[0]} ${height}L${places[0][0]} ${height}Z` }),
      svg("path", { class: `s${series}`, d: line, "stroke-width": 1.5, "vector-effect": "non-scaling-stroke" }),
    ];
  });
  node.setAttribute("viewBox", `0 0 ${width} ${height}`);
  node.setAttribute("preserveAspectRatio", "none");
  node.replaceChildren(...parts);
}

let charts = 0;

/** The seconds between two marks of the time axis. */
const STEPS = [10, 20, 30, 60, 120, 180, 300];
const ago = (seconds, step) => (step % 60 ? `−${seconds} s` : `−${seconds / 60} min`);

/** One series above the other, each in a style: 0 passes, 1 is refused, 2 is answered. What is refused has hatching, and all lines differ, beside their colours. */
export class StackedChart {
  constructor(host, { name, series, styles, unit, total }) {
    Object.assign(this, { host, name, series, styles, unit, total, at: null, id: charts++ });
    this.legend = el("ul", { class: "legend", "aria-hidden": "true" });
    this.picture = svg("svg", { role: "img", tabindex: 0 });
    host.replaceChildren(this.picture, this.legend);
    const read = (event) => {
      const box = this.picture.getBoundingClientRect();
      this.at = (event.clientX - box.left) / box.width;
      this.draw();
    };
    const leave = () => { this.at = null; this.draw(); };
    this.picture.addEventListener("pointermove", read);
    this.picture.addEventListener("pointerleave", leave);
    this.picture.addEventListener("blur", leave);
    this.picture.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      this.at = Math.min(1, Math.max(0, (this.at ?? 1) + step / 60));
      this.draw();
    });
    new ResizeObserver(() => this.draw()).observe(host);
  }
  show(history, of, unit = this.unit) { Object.assign(this, { history, of, unit }); this.draw(); }
  draw() {
    if (!this.history) return;
    const { width, height } = this.picture.getBoundingClientRect();
    if (width < 20 || height < 20) return;
    const [left, bottom, upper] = [48, 20, 22];
    const points = this.history.window().map(({ ms, values }) => ({ ms, values: values && this.of(values) }));
    const shown = points.filter((point) => point.values);
    const now = points.at(-1)?.ms ?? Date.now();
    const seconds = this.history.seconds();
    const sum = (values) => values.reduce((all, one) => all + one, 0);
    const top = ceiling(Math.max(1, ...shown.map((point) => sum(point.values))));
    const x = (ms) => left + (1 - (now - ms) / (seconds * 1000)) * (width - left);
    const y = (value) => height - bottom - (value / top) * (height - bottom - upper);
    const parts = [svg("defs", {}, svg("pattern", { id: `hatch${this.id}`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("line", { class: "h1", x1: 0, y1: 0, x2: 0, y2: 6 })))];
    for (const part of [0, 0.25, 0.5, 0.75, 1]) {
      const at = y(top * part);
      parts.push(svg("line", { class: "grid", x1: left, x2: width, y1: at, y2: at }));
      if (height > 160 || part % 0.5 === 0) parts.push(svg("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, rate(top * part)));
    }
    const step = STEPS.find((step) => ((width - left) * step) / seconds > 80) ?? 300;
    for (let at = 0; at <= seconds; at += step) {
      const anchor = at === 0 ? "end" : at === seconds ? "start" : "middle";
      parts.push(svg("text", { x: x(now - at * 1000), y: height - 4, "text-anchor": anchor }, at ? ago(at, step) : "now"));
    }
    for (const piece of pieces(points)) {
      let base = piece.map(({ ms }) => [x(ms), y(0)]);
      this.styles.forEach((style, nth) => {
        if (nth && !piece.some(({ values }) => values[nth] > 0)) return;
        const line = piece.map(({ ms, values }) => [x(ms), y(sum(values.slice(0, nth + 1)))]);
        const area = `${path(line)}L${path([...base].reverse()).slice(1)}Z`;
        parts.push(svg("path", { class: `f${style}`, d: area }));
        if (style === 1) parts.push(svg("path", { fill: `url(#hatch${this.id})`, opacity: 0.35, d: area }));
        parts.push(svg("path", { class: `s${style}`, d: path(line, (at) => !nth || [at - 1, at, at + 1].some((one) => piece[one]?.values[nth] > 0)), "stroke-width": 1.8, "stroke-linejoin": "round" }));
        base = line;
      });
    }
    let read = shown.at(-1);
    if (this.at !== null && shown.length) {
      const ms = now - (1 - (this.at * width - left) / (width - left)) * seconds * 1000;
      read = shown.reduce((best, point) => (Math.abs(point.ms - ms) < Math.abs(best.ms - ms) ? point : best));
      parts.push(svg("line", { class: "hair", x1: x(read.ms), x2: x(read.ms), y1: upper, y2: height - bottom }));
    }
    this.picture.replaceChildren(...parts);
    const values = read?.values ?? this.series.map(() => 0);
    const told = this.series.map((name, nth) => `${name} ${rate(values[nth])}`);
    const all = `${this.total} ${rate(sum(values))}`;
    const when = this.at !== null && read ? clock(read.ms) : "now";
    this.legend.replaceChildren(...told.map((text, nth) => el("li", { class: `l${this.styles[nth]}` }, text)), el("li", { class: "l9" }, all), el("li", { class: "l9" }, `${this.unit}, ${when}`));
    const peak = shown.length ? Math.max(...shown.map((point) => sum(point.values))) : 0;
    const label = `${this.name}, ${when}: ${all}, ${told.join(", ")} ${this.unit}. Peak of the last ${span(seconds)}: ${rate(peak)}. Arrow keys read other moments.`;
    // Said again only for whoever reads it.
    if (this.picture.getAttribute("aria-label") !== label) this.picture.setAttribute("aria-label", label);
  }
}

/** What a chart shows, as a table of its last minute. */
export function minute(table, history, of) {
  const points = history.points.filter((point) => point.values).slice(-60).reverse();
  const lines = points.map((point) => el("tr", {}, el("th", { scope: "row" }, clock(point.ms)), ...of(point.values).map((value) => el("td", { class: "n" }, rate(value)))));
  table.tBodies[0].replaceChildren(...lines);
}
