// Why an address is treated as it is.
import { bar, byId, el } from "./element.js";
import { count, milliseconds, rate, span, words } from "./format.js";

const WORDS = { pass: "Its next packet passes", drop: "Its next packet is dropped", would_drop: "Its next packet passes only because the policy is on trial" };

function limits(title, all) {
  if (!all?.length) return [];
  const line = (one) => el("li", {}, bar(one.capacity ? one.left / one.capacity : 0), `${one.rate}: ${count(one.left)} of ${count(one.capacity)} ${one.meter ?? "packets"} left`, one.refused_for_ms ? `, refused for ${milliseconds(one.refused_for_ms)}` : "");
  return [el("div", {}, el("h3", {}, title), el("ul", {}, ...all.map(line)))];
}

function told(one) {
  const refusals = one.refusals.map((refusal) => el("li", {}, `${words(refusal.reason)}: ${refusal.applies_to}${refusal.service ? ` for ${refusal.service}` : ""}, ${refusal.for_ms === null ? "for good" : `for ${milliseconds(refusal.for_ms)}`}${refusal.waived ? " (waived: on trial)" : ""}`));
  const terms = [
    ["Source", one.source],
    ["Allowed by", one.allowed_by.join(", ")],
    ["Blocked by", one.blocked_by.map((block) => `${block.prefix}${block.reason ? ` (${block.reason})` : ""}${block.seconds_left === null ? " for good" : ` for ${span(block.seconds_left)}`}`).join(", ")],
    ["User", one.user && [one.user.name, one.user.plan && `plan ${one.user.plan}`].filter(Boolean).join(", ")],
    ["Counted by", { entry: "an entry of its own", cell: "a cell that it shares with others", none: "nothing yet: its first packet makes an entry" }[one.own.state] ?? one.own.state],
    ["Known client", one.known.filter(({ client }) => client?.state === "known").map(({ service, client }) => `of ${service ?? "no service"}, served ${rate(client.packets_per_second)} packets/s on average; while its total is spent ${rate(client.claim_packets_per_second)} packets/s come first`).join("; ")],
    ["Prefixes", one.prefixes.map((prefix) => `${prefix.prefix}: ${count(prefix.left)} of ${count(prefix.capacity)} left`).join("; ")],
  ].filter(([, value]) => value);
  const drops = one.last_drops.slice(0, 5).map((drop) => el("li", {}, `${milliseconds(drop.ms_ago)} ago: ${words(drop.reason)}${drop.port ? `, port ${drop.port}` : ""}${drop.service ? `, ${drop.service}` : ""}`));
  return [
    el("p", { class: "verdict" }, `${WORDS[one.verdict] ?? one.verdict}: ${words(one.reason)}.`),
    ...(refusals.length ? [el("div", {}, el("h3", {}, "Refused now"), el("ul", {}, ...refusals))] : []),
    el("dl", {}, ...terms.flatMap(([term, value]) => [el("dt", {}, term), el("dd", {}, value)])),
    ...limits("Limits of this source", one.own.limits),
    ...limits("Limits of its user", one.user?.limits),
    ...one.services.flatMap((service) => limits(`Service ${service.service}`, [...(service.per_source?.limits ?? []), ...service.totals])),
    ...(drops.length ? [el("div", {}, el("h3", {}, "Refused lately"), el("ul", {}, ...drops))] : []),
  ];
}

/** Asks about an address; `ask` is how. */
export function explainer(ask, order) {
  const [form, input, place] = [byId("explain"), byId("address"), byId("explanation")];
  const explain = async (address) => {
    input.value = address;
    place.setAttribute("aria-busy", "true");
    try {
      const answer = await ask(`/dashboard/explain?address=${encodeURIComponent(address)}`);
      place.replaceChildren(el("h3", { class: "who" }, answer.address), ...told(answer), ...order(answer));
    } catch (error) {
      place.replaceChildren(el("p", { class: "error" }, error.message));
    } finally {
      place.removeAttribute("aria-busy");
    }
  };
  form.addEventListener("submit", (event) => { event.preventDefault(); explain(input.value.trim()); });
  return (address) => { form.scrollIntoView({ block: "center" }); input.focus(); return explain(address); };
}
