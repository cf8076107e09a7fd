// What a picture looks like: one function for each panel.
import { bar, byId, el, rows, setText, svg, terms } from "./element.js";
import { bits, count, microseconds, percent, rate, span, words } from "./format.js";
import { sparkline } from "./chart.js";

const flow = (one) => one ?? { packets_per_second: 0, bytes_per_second: 0 };

/** The numbers that charts are made of. */
export function values({ packets, decisions }) {
  const flows = [packets?.passed, packets?.replied, packets?.dropped].map(flow);
  return {
    packets: flows.map((one) => one.packets_per_second),
    bits: flows.map((one) => one.bytes_per_second * 8),
    decisions: [decisions.per_second - decisions.refused_per_second, decisions.refused_per_second],
  };
}

/** The numbers of one second of the daemon's history. */
export const past = (second) => values({ packets: second, decisions: { per_second: second.decided_per_second, refused_per_second: second.refused_per_second } });

const sum = (all) => all.reduce((one, other) => one + other, 0);
const share = (part, all) => `${percent(part / Math.max(1, sum(all)))} of what is offered`;
const TILES = [
  { id: "offered", name: "Offered", unit: "packets/s", needs: "packets", series: 0, of: (v) => sum(v.packets), more: (v) => bits(sum(v.bits)) },
  { id: "passed", name: "Passed", unit: "packets/s", needs: "packets", kind: "pass", series: 0, of: (v) => v.packets[0], more: (v) => bits(v.bits[0]) },
  { id: "answered", name: "Answered", unit: "packets/s", needs: "packets", kind: "answer", series: 2, of: (v) => v.packets[1], more: (v) => share(v.packets[1], v.packets) },
  { id: "dropped", name: "Dropped", unit: "packets/s", needs: "packets", kind: "drop", series: 1, of: (v) => v.packets[2], more: (v) => share(v.packets[2], v.packets) },
  { id: "decisions", name: "Decisions", unit: "requests/s", needs: "requests", series: 0, of: (v) => sum(v.decisions), more: (v, { decisions }) => (decisions.p99_us ? `99 % within ${microseconds(decisions.p99_us)}` : "") },
  { id: "refused", name: "Refused", unit: "requests/s", needs: "requests", kind: "drop", series: 1, of: (v) => v.decisions[1], more: (v) => (sum(v.decisions) ? `${percent(v.decisions[1] / sum(v.decisions))} of decisions` : "") },
];

export function tiles(host, history, picture, there) {
  const now = history.last();
  for (const tile of TILES.filter((tile) => there[tile.needs])) {
    let node = host.querySelector(`[data-tile=${tile.id}]`);
    if (!node) {
      node = el("article", { class: `tile ${tile.kind ?? ""}`, "data-tile": tile.id },
        el("h2", {}, tile.name), el("p", { class: "value" }, el("span"), el("span", { class: "unit" })), el("p", { class: "more" }), svg("svg", { "aria-hidden": "true" }));
      host.append(node);
    }
    const [value, letter] = rate(tile.of(now)).split(" ");
    setText(node.querySelector(".value span"), value);
    setText(node.querySelector(".unit"), ` ${letter ?? ""} ${tile.unit}`.replace("  ", " "));
    setText(node.querySelector(".more"), tile.more(now, picture));
    sparkline(node.querySelector("svg"), history, (point) => tile.of(point.values), tile.series);
  }
}

export function badges(host, { status, attacks }) {
  const wanted = [];
  if (status) {
    wanted.push(status.protected ? ["good", "protected"] : ["bad", "NOT PROTECTED"]);
    wanted.push(status.mode === "monitor" ? ["warn", "monitor: nothing is dropped"] : ["quiet", status.mode]);
    const going = (attacks ?? []).filter((one) => !one.end);
    if (going.length) wanted.push([going.every((one) => one.contained) ? "warn" : "bad", `${going.every((one) => one.contained) ? "contained attack" : "ATTACK"} on ${going.map((one) => one.name ?? "the host").slice(0, 3).join(", ")}`]);
    if (!going.length || status.posture !== "normal") wanted.push([{ normal: "good", elevated: "warn", flood: "bad" }[status.posture] ?? "quiet", { normal: "no attack", elevated: "elevated", flood: "FLOOD" }[status.posture] ?? status.posture]);
    if (status.headroom === "no") wanted.push(["warn", "no headroom"]);
    if (status.unconfirmed) wanted.push(["warn", `unconfirmed policy: back in ${status.unconfirmed.seconds_left} s`]);
    if (status.cluster && !status.cluster.store_up) wanted.push(["bad", "store away"]);
  } else wanted.push(["quiet", "requests only"]);
  const key = JSON.stringify(wanted);
  if (host.dataset.key === key) return;
  host.dataset.key = key;
  host.replaceChildren(...wanted.map(([kind, text]) => el("li", { class: `badge ${kind}` }, text)));
}

const plain = (one) => `${words(one.kind)} on ${one.target === "host" ? "this host" : `${one.target} ${one.name}`}`;

/** Attacks that go on, each with a way to its report. */
export function alarm(section, attacks, show) {
  const going = (attacks ?? []).filter((one) => !one.end);
  section.hidden = !going.length;
  if (!going.length) return;
  section.className = going.every((one) => one.contained) ? "contained" : "";
  rows(section.querySelector("table"), going.map((one) => ({
    key: String(one.number),
    cells: [
      `Attack ${one.number}${one.contained ? " is contained" : ""}: ${plain(one)}, for ${span(one.seconds)}. ${rate(one.refused_per_second)} packets/s refused, ${rate(one.passed_per_second)} packets/s pass.`,
      { key: "show", make: () => el("button", { type: "button", onclick: () => show(one.number), "aria-label": `Show attack ${one.number}` }, "Show") },
    ],
  })), "");
}

export function warnings(section, all) {
  const key = JSON.stringify(all);
  if (section.dataset.key === key) return;
  section.dataset.key = key;
  section.hidden = !all.length;
  section.querySelector("ul").replaceChildren(...all.map((text) => el("li", {}, text)));
}

export function reasons(packets) {
  const all = (packets?.reasons ?? []).filter((one) => one.packets_per_second > 0).sort((a, b) => b.packets_per_second - a.packets_per_second);
  const whole = all.reduce((sum, one) => sum + one.packets_per_second, 0);
  rows(byId("reasons"), all.slice(0, 20).map((one) => {
    const part = one.packets_per_second / whole;
    const kind = { drop: "drop", rejected: "drop", reply: "answer" }[one.verdict] ?? "";
    const cells = [words(one.reason), one.verdict === "reply" ? "answered" : words(one.verdict), rate(one.packets_per_second), { key: `${kind}${percent(part)}`, make: () => [bar(part, kind), percent(part)] }];
    return { key: `${one.reason}/${one.verdict}`, cells };
  }), "No packets.");
}

/** What is left of the limit that refuses first, and how much of a user's limit was spent on this host. */
function left(limits, isUser) {
  if (!limits?.length) return "";
  const one = limits.reduce((least, other) => (other.left_percent < least.left_percent ? other : least));
  const shares = limits.map((limit) => limit.share_percent).filter((share) => share !== undefined);
  const here = isUser && shares.length ? `, ${Math.max(...shares)} % of it here` : "";
  return `${one.left_percent} % of ${one.limit.split(" burst")[0]}${here}`;
}

export function talkers(packets, which, { explain, order, unlocked }) {
  const name = { sources: "source", prefixes: "prefix", users: "user" }[which];
  const all = packets?.[which] ?? [];
  const seconds = (packets?.span_ms || 1000) / 1000;
  const make = (one) => {
    const who = one[name] ?? one.name;
    const address = String(who).split("/")[0];
    const whole = one.passed_packets + one.dropped_packets + (one.replied_packets ?? 0);
    const answered = one.replied_packets ?? 0;
    const part = whole ? one.dropped_packets / whole : 0;
    const fate = answered ? `${percent(part)}, ${percent(answered / whole)} answered` : percent(part);
    return {
      key: who,
      cells: [
        { key: `${which}${who}`, make: () => (which === "users" ? who : el("button", { type: "button", class: "link who", title: "Explain", onclick: () => explain(address) }, who)) },
        rate(one.packets_per_second) + (one.error_packets ? ` ± ${rate(one.error_packets / seconds)}` : ""),
        rate(one.bytes_per_second * 8),
        { key: fate, make: () => [bar(part, "drop"), fate] },
        one.reason ? words(one.reason) : "",
        left(one.limits, which === "users"),
        [one.service, one.port, one.known && "known"].filter(Boolean).join(", "),
        which === "users" ? "" : one.user ?? "",
        { key: `${unlocked && which !== "users"}`, make: () => (unlocked && which !== "users" ? el("button", { type: "button", class: "small", onclick: () => order("block", who) }, "Block…") : "") },
      ],
    };
  };
  rows(byId("talkers"), all.map(make), which === "users" ? "No user of the policy sends anything." : "Nobody sends anything.");
  const sampling = packets?.sampling;
  const parts = [
    sampling?.problem && `No talkers: ${sampling.problem}`,
    sampling?.samples && (sampling.one_in > 1 ? `Estimated from ${count(sampling.samples)} packets, 1 in ${count(sampling.one_in)} at the busiest moment` : `Every packet was seen: ${count(sampling.samples)}`),
    sampling?.lost && `${count(sampling.lost)} samples lost`,
    sampling?.one_in > 1 && `who is not listed sent fewer than ${count(sampling.unseen_packets)} packets in this second`,
  ];
  setText(byId("sampling"), parts.filter(Boolean).join("; "));
}

export function services(packets, status) {
  const all = (packets?.services ?? []).map((one) => ({ ...one, all: sum([one.passed, one.replied, one.dropped].map((each) => flow(each).packets_per_second)) }));
  all.sort((a, b) => b.all - a.all || a.service.localeCompare(b.service));
  rows(byId("services"), all.slice(0, 64).map((one) => {
    const trial = status?.services_on_trial?.includes(one.service) ? " (on trial)" : "";
    const flows = [one.passed, one.replied, one.dropped].map(flow);
    const bytes = sum(flows.map((each) => each.bytes_per_second));
    return { key: `-${one.service}`, cells: [(one.service || "no service") + trial, ...flows.map((each) => rate(each.packets_per_second)), rate(bytes * 8), left(one.totals)] };
  }), "The policy has no services.");
}

export function requests({ decisions }) {
  const { p50_us: half, p99_us: most, timed, keys, store_up: store } = decisions;
  const parts = [timed && half ? `50 % within ${microseconds(half)}, 99 % ${most ? `within ${microseconds(most)}` : "longer than is counted"}` : "", keys ? `${count(keys)} keys` : "", store === true ? "store up" : store === false ? "STORE AWAY" : ""];
  setText(byId("latency"), parts.filter(Boolean).join("; "));
  const all = [...decisions.apis].sort((a, b) => b.per_second - a.per_second || b.total - a.total);
  rows(byId("apis"), all.slice(0, 32).map((one) => ({ key: one.api, cells: [one.api, rate(one.per_second), rate(one.refused_per_second), count(one.total), count(one.refused)] })), "No request has been decided yet.");
}

export function host(status) {
  if (!status) return;
  const part = status.table_capacity ? status.table_entries / status.table_capacity : 0;
  const table = `${count(status.table_entries)} of ${count(status.table_capacity)} sources (${percent(part)})`;
  const meter = () => { const inner = el("i"); inner.style.setProperty("--part", `${Math.ceil(part * 100)}%`); return [table, el("span", { class: "meter", "aria-hidden": "true" }, inner)]; };
  terms(byId("host"), [
    ...status.interfaces.map((one) => [`Interface ${one.name}`, [one.mode, one.link, one.note].filter(Boolean).join(", ")]),
    ["Policy", `${status.policy}, generation ${count(status.policy_generation)}${status.policy_changed ? ", changed since it was read" : ""}`],
    ["Attack state", `${status.posture}, ${count(status.posture_changes)} changes`],
    ["Source table", { key: table, make: meter }],
    ["New sources", `${count(status.promotions_per_second)} in the last second, ${count(status.evictions)} evicted so far`],
    ["Tracked cells", count(status.hot_cells)],
    ["Known clients", `${count(status.known_clients)}; while totals were spent ${count(status.known_admitted_packets)} of their packets came first, ${count(status.known_refused_packets)} were refused`],
    ["Headroom", status.headroom + (status.headroom_reason ? `: ${status.headroom_reason}` : "")],
    ["Lists", `${count(status.blocked_prefixes)} blocked, ${count(status.allowed_prefixes)} allowed`],
    ["Kernel", status.kernel],
    ["Up", span(status.uptime_seconds)],
  ]);
}

export function cluster({ status, hosts }) {
  const ours = status?.cluster;
  if (!ours) return;
  terms(byId("cluster"), [
    ["Bound in force", ours.bound],
    ["Store", `${ours.store}, ${ours.store_up ? `up, ${microseconds(ours.round_trip_us)}` : `AWAY${ours.problem ? `: ${ours.problem}` : ""}`}`],
    ["This host", `${ours.host}: ${count(ours.leases)} of ${count(ours.limits)} limits leased, ${count(ours.lease_units)} units`],
    ["Disputed limits", ours.limits_disputed ? count(ours.limits_disputed) : undefined],
  ]);
  rows(byId("hosts"), (hosts ?? []).map((one) => ({ key: one.host, cells: [one.host, one.state, `${span(one.seen_ms_ago / 1000)} ago`, one.behind === undefined ? "" : `${count(one.behind)} changes`] })), "The store has told of no hosts yet.");
}

export function lists({ blocks, blocks_in_all, allows, allows_in_all }, { order, unlocked }) {
  const button = (what, prefix, cluster) => ({ key: `${unlocked}${what}`, make: () => (unlocked ? el("button", { type: "button", class: "small", onclick: () => order(what, prefix, cluster) }, what === "unblock" ? "Unblock…" : "Remove…") : "") });
  rows(byId("lists"), [
    ...blocks.map((one) => ({ key: `block ${one.prefix} ${one.origin || ""}`, cells: [one.prefix, "blocked", one.seconds_left === null || one.seconds_left === undefined ? "for good" : span(one.seconds_left), one.refused ? `NOT BLOCKED HERE: ${one.refused}` : [one.reason, one.origin && `all hosts, by ${one.origin}`].filter(Boolean).join("; "), button("unblock", one.prefix, Boolean(one.origin))] })),
    ...allows.map((one) => ({ key: `allow ${one}`, cells: [one, "allowed", "", "", button("disallow", one)] })),
  ], "Nothing is blocked or allowed.");
  const more = blocks_in_all - blocks.length + allows_in_all - allows.length;
  setText(byId("lists-note"), more > 0 ? `and ${count(more)} more: ratelimit block list, ratelimit allow list` : "");
}

