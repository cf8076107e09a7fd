// The page: pictures come in, panels are drawn, orders go out.
import { byId, setText } from "./element.js";
import { clock, span } from "./format.js";
import { History, StackedChart, minute } from "./chart.js";
import { Stream } from "./stream.js";
import { buttons, forgetToken, keptToken, orders, tokens } from "./orders.js";
import { attack, attacks } from "./attacks.js";
import { explainer } from "./explain.js";
import * as panels from "./panels.js";

/** Lists are asked for when their lengths change, and this often: blocks run out. */
const LISTS_MS = 10000;

const history = new History();
const traffic = new StackedChart(byId("traffic-chart"), { name: "Traffic", series: ["passed", "answered", "dropped"], styles: [0, 2, 1], unit: "packets/s", total: "offered" });
const decided = new StackedChart(byId("requests-chart"), { name: "Decisions", series: ["served", "refused"], styles: [0, 1], unit: "requests/s", total: "decided" });
let [session, picture, paused, lostAt, listed] = [null, null, false, null, { key: "", at: 0 }];

const chosen = (name) => document.querySelector(`input[name=${name}]:checked`).value;
const isUnlocked = () => session?.changes === "unlocked";
const say = (text, kind = "") => { byId("notice").className = kind; setText(byId("notice"), text); };

/** Asks the daemon something; what goes wrong is a sentence. */
async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, cache: "no-store", headers: { ...stream.fields(), ...options.headers } }).catch(() => { throw new Error("no connection to the daemon"); });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.detail ?? answer.statusText);
  return body;
}

const send = (order) => ask("/dashboard/order", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(order) });
const askOrder = orders(send, (message) => { say(message, "good"); listed.key = ""; refreshLists(); });
const order = (what, prefix, cluster) => askOrder(what, prefix, cluster, Boolean(picture?.status?.cluster));
const explain = explainer(ask, (answer) => (isUnlocked() ? buttons(answer.address, order) : []));

async function refreshLists() {
  const { blocked_prefixes: blocked, allowed_prefixes: allowed } = picture?.status ?? {};
  const key = `${blocked}/${allowed}/${session?.changes}`;
  if (blocked === undefined || (listed.key === key && Date.now() - listed.at < LISTS_MS)) return;
  listed = { key, at: Date.now() };
  try {
    panels.lists(await ask("/dashboard/lists"), { order, unlocked: isUnlocked() });
  } catch { /* The connection's own line tells of it. */ }
}

/** What there is to show: packets where interfaces are guarded, requests where the policy has APIs. */
function needs() {
  const there = { packets: session?.guards, requests: !session?.guards || Boolean(picture?.decisions.apis.length), cluster: Boolean(picture?.status?.cluster), attacks: Boolean(picture?.attacks) };
  for (const node of document.querySelectorAll("[data-needs]")) node.hidden = !there[node.dataset.needs];
  return there;
}

async function showAttack(number) {
  await attack(number, ask);
  byId("attack").scrollIntoView({ block: "nearest" });
}

/** What came before this page was opened, as far as the daemon knows it. */
async function before() {
  try {
    history.fill((await ask("/dashboard/history")).map((second) => ({ ms: second.unix_ms, values: panels.past(second) })));
    if (!paused) draw();
  } catch { /* The connection's own line tells of it. */ }
}

function draw() {
  if (!picture || !session) return;
  const there = needs();
  document.title = `${picture.host} - ratelimit`;
  setText(byId("host-name"), picture.host);
  panels.alarm(byId("alarm"), picture.attacks, showAttack);
  panels.badges(byId("badges"), picture);
  panels.warnings(byId("warnings"), picture.warnings);
  panels.tiles(byId("tiles"), history, picture, there);
  history.shown = Number(chosen("range"));
  const unit = chosen("unit");
  decided.show(history, (values) => values.decisions);
  panels.requests(picture);
  setText(byId("build"), `ratelimit ${picture.build}, up ${span(picture.uptime_seconds)}, ${clock(picture.unix_ms)}`);
  if (!session.guards) return;
  traffic.show(history, (values) => values[unit], unit === "bits" ? "bit/s" : "packets/s");
  if (byId("traffic-table").open) minute(byId("traffic-table").querySelector("table"), history, (values) => [values[unit].reduce((all, one) => all + one, 0), ...values[unit]]);
  if (picture.packets) {
    panels.reasons(picture.packets);
    panels.services(picture.packets, picture.status);
    panels.talkers(picture.packets, chosen("talkers"), { explain, order, unlocked: isUnlocked() });
  }
  attacks(picture.attacks, picture.unix_ms, showAttack);
  panels.host(picture.status);
  panels.cluster(picture);
  refreshLists();
}

function take(now) {
  if (lostAt) {
    const restarted = picture && now.uptime_seconds < picture.uptime_seconds;
    const another = picture && now.build !== picture.build ? " It is another build: reload this page." : "";
    say(`${restarted ? "The daemon was restarted: connected" : "Connected"} again after ${span((Date.now() - lostAt) / 1000)}.${another}`, another ? "warn" : "good");
    if (!another) setTimeout(() => say(""), 8000);
    lostAt = null;
  }
  picture = now;
  if (!now.status || now.packets) history.add(now.packets?.unix_ms ?? now.unix_ms, panels.values(now));
  const connection = byId("connection");
  setText(connection, paused ? "paused" : "live");
  connection.className = `badge ${paused ? "quiet" : "good"}`;
  if (!paused && history.last()) draw();
}

let hadToken = false;
// Without the token that was not right there may still be something to see.
const askToken = tokens((token) => { stream.token = token; stream.start(); }, () => hadToken && !stream.running && stream.start());
const stream = new Stream({
  told(name, data) {
    if (name === "session") {
      session = data;
      const lock = byId("unlock");
      lock.hidden = data.changes === "never";
      setText(lock, data.changes === "unlocked" ? "Lock changes" : "Unlock changes");
      for (const node of document.querySelectorAll(".needs-token")) node.hidden = data.changes !== "unlocked";
      needs();
      if (data.guards) before();
    } else if (name === "picture") take(data);
  },
  state(kind, sentence) {
    if (kind === "bad") {
      lostAt ??= Date.now();
      say(`Not live: ${sentence}. Trying again.`, "bad");
    }
    setText(byId("connection"), kind === "bad" ? "reconnecting" : sentence);
    byId("connection").className = `badge ${kind}`;
  },
  refused(sentence) {
    hadToken = Boolean(stream.token);
    byId("unlock").hidden = false;
    stream.token = null;
    forgetToken();
    setText(byId("connection"), "needs a token");
    askToken("This dashboard is shown to whoever has a token: the one that programs show (token_file), or the operator's (operator_token_file).", hadToken ? sentence : "");
  },
});

byId("unlock").addEventListener("click", () => {
  if (!isUnlocked()) return askToken("The operator's token (operator_token_file in [listen]) lets you block and allow from here.");
  forgetToken();
  stream.token = null;
  stream.start();
});
byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  setText(byId("pause"), paused ? "Go on" : "Pause");
  if (!paused) draw();
});
byId("add-block").addEventListener("click", () => order("block"));
byId("add-allow").addEventListener("click", () => order("allow"));
document.addEventListener("change", (event) => event.target.type === "radio" && draw());
byId("traffic-table").addEventListener("toggle", draw);
stream.token = keptToken();
stream.start();
