// Attacks: a list, when they were, and how one of them went.
import { byId, el, rows, svg } from "./element.js";
import { bits, clock, count, rate, span, words } from "./format.js";

const day = (ms) => new Date(ms).toLocaleString("en-GB", { dateStyle: "short", timeStyle: "medium" });
const where = (one) => (one.target === "host" ? "host" : `${one.target} ${one.name}`);

/** When they were, from the first of them on, or the last hour. */
function line(all, now) {
  const start = (one) => Date.parse(one.begin);
  const from = Math.min(now - 3600e3, ...all.map(start));
  const at = (ms) => ((ms - from) / (now - from)) * 100;
  const marks = all.map((one) => {
    const left = at(start(one));
    return svg("rect", { x: `${left}%`, width: `${Math.max(0.5, at(one.end ? Date.parse(one.end) : now) - left)}%`, y: 3, height: 14, rx: 2 });
  });
  return svg("svg", { role: "img", "aria-label": `${all.length} attacks since ${day(from)}` },
    svg("line", { x1: 0, x2: "100%", y1: 19, y2: 19 }), ...marks, svg("text", { x: 0, y: 32 }, day(from)), svg("text", { x: "100%", y: 32, "text-anchor": "end" }, "now"));
}

/** How one went: passed below, refused above it. */
function course({ step_seconds: step, refused, passed }) {
  const [width, height] = [400, 90];
  const top = Math.max(1, ...refused.map((value, at) => value + (passed[at] ?? 0)));
  const x = (at) => (at / Math.max(1, refused.length - 1)) * width;
  const y = (value) => height - (value / top) * (height - 4);
  const edge = (of) => refused.map((_, at) => `${x(at).toFixed(1)} ${y(of(at)).toFixed(1)}`);
  const below = edge((at) => passed[at] ?? 0);
  const above = edge((at) => (passed[at] ?? 0) + refused[at]);
  const label = `Course over ${span(step * refused.length)}: at most ${rate(Math.max(0, ...refused))} refused and ${rate(Math.max(0, ...passed))} passed packets/s`;
  return el("figure", {}, svg("svg", { role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", height },
    svg("path", { class: "f0", d: `M0 ${height}L${below.join("L")}L${width} ${height}Z` }),
    svg("path", { class: "f1", d: `M${above.join("L")}L${[...below].reverse().join("L")}Z` }),
    svg("path", { class: "s1", d: `M${above.join("L")}`, "vector-effect": "non-scaling-stroke" })), el("figcaption", { class: "note" }, label));
}

function unusual({ measure, peak_per_second: peak, usual_per_second: usual }) {
  const per = (value) => (measure === "bytes" ? bits(value * 8) : `${rate(value)} ${words(measure)}/s`);
  return `${per(peak)}, usually at most ${per(usual)}`;
}

function told(one) {
  const often = (title, all) => (all?.length ? [el("dt", {}, title), el("dd", {}, all.slice(0, 5).map((each) => `${each.value} (${each.packets === undefined ? count(each.samples) : `${count(each.packets)} packets`})`).join(", "))] : []);
  const isAnswer = ({ reason }) => reason === "cookie_sent";
  const answered = one.reasons.find(isAnswer)?.packets ?? 0;
  const dropped = one.reasons.filter((reason) => !isAnswer(reason));
  const reasons = (all) => (all.length ? `: ${all.map((reason) => `${words(reason.reason)} ${count(reason.packets)}`).join(", ")}` : "");
  return [
    el("h3", {}, `Attack ${one.number}: ${words(one.kind)} on ${where(one)}`),
    course(one.timeline),
    el("dl", {},
      el("dt", {}, "Began"), el("dd", {}, day(Date.parse(one.begin))),
      ...(one.end ? [] : [el("dt", {}, one.contained ? "Contained" : "Goes on"), el("dd", {}, `${rate(one.refused_per_second)} packets/s refused, ${rate(one.passed_per_second)} packets/s pass`)]),
      el("dt", {}, "Peak"), el("dd", {}, `${rate(one.peak_packets_per_second)} packets/s at ${clock(Date.parse(one.peak_at))}, ${bits(one.peak_bytes_per_second * 8)}`),
      ...(one.unusual ? [el("dt", {}, "Unusual"), el("dd", {}, `${unusual(one.unusual)}; ${one.unusual.advice}`)] : []),
      el("dt", {}, "Refused"), el("dd", {}, `${count(one.refused_packets - answered)} packets${reasons(dropped)}`),
      ...(answered ? [el("dt", {}, "Answered"), el("dd", {}, `${count(answered)} SYNs, and no sender came back with the cookie`)] : []),
      el("dt", {}, "Passed"), el("dd", {}, `${one.passed_before_per_second === null ? "not known" : rate(one.passed_before_per_second)} packets/s before, ${rate(one.passed_during_per_second)} meanwhile; whose packets those were is not known`),
      ...(one.known_admitted_packets + one.known_refused_packets ? [el("dt", {}, "Known clients"), el("dd", {}, `${count(one.known_admitted_packets)} packets came first, ${count(one.known_refused_packets)} were refused`)] : []),
      ...often("Sources", one.sources), ...often("Prefixes", one.prefixes), ...often("Ports", one.ports), ...often("From ports", one.source_ports),
      ...(one.changes?.length ? [el("dt", {}, "Meanwhile"), el("dd", {}, one.changes.slice(-5).map((change) => change.what).join("; "))] : [])),
  ];
}

/** Shows one attack; `ask` is how it is asked about. */
export async function attack(number, ask) {
  const place = byId("attack");
  try {
    place.replaceChildren(...told(await ask(`/dashboard/attack?number=${number}`)));
  } catch (error) {
    place.replaceChildren(el("p", { class: "error" }, error.message));
  }
}

/** Draws the panel; `show` shows one attack. */
export function attacks(all, now, show) {
  if (!all) return;
  rows(byId("attacks"), all.map((one) => ({
    key: String(one.number),
    cells: [
      { key: String(one.number), make: () => el("button", { type: "button", class: "link", onclick: () => show(one.number), "aria-label": `Attack ${one.number}` }, String(one.number)) },
      day(Date.parse(one.begin)), one.end ? span(one.seconds) : `${one.contained ? "contained" : "GOES ON"}, ${span(one.seconds)}`, words(one.kind), where(one), rate(one.peak_packets_per_second), rate(one.refused_packets)],
  })), "No attack has been recorded.");
  const key = JSON.stringify(all.map((one) => [one.number, one.end ?? Math.floor(now / 10000)]));
  const place = byId("attacks-line");
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  place.replaceChildren(line(all, now));
}
