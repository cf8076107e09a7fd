// What needs a token, and what is asked before it is done.
import { byId, el, setText } from "./element.js";

const KEPT = "ratelimit-token";

export const keptToken = () => sessionStorage.getItem(KEPT);
export const forgetToken = () => sessionStorage.removeItem(KEPT);

function dialog(id) {
  const node = byId(id);
  node.querySelector("[value=cancel]").addEventListener("click", () => node.close());
  return { node, form: node.querySelector("form"), error: node.querySelector(".error") };
}

/** Asks for a token; `use` tries it, `cancelled` hears that there is none. */
export function tokens(use, cancelled) {
  const { node, form, error } = dialog("token-dialog");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const token = byId("token").value.trim();
    byId("token").value = "";
    sessionStorage.setItem(KEPT, token);
    node.close("used");
    use(token);
  });
  node.addEventListener("close", () => { if (node.returnValue !== "used") cancelled(); node.returnValue = ""; });
  return (why, wrong = "") => {
    setText(byId("token-why"), why);
    setText(error, wrong);
    if (!node.open) node.showModal();
  };
}

const KINDS = {
  block: { title: "Block", button: "Block", effect: "Its packets are dropped before any limit is asked. What would cut off this host, its gateway, a live SSH session or you is refused." },
  unblock: { title: "Unblock", button: "Unblock", effect: "Its packets are limited as others' are." },
  allow: { title: "Allow", button: "Allow", effect: "Its packets are neither blocked nor limited from now on." },
  disallow: { title: "Take off the allow list", button: "Remove", effect: "Its packets are limited as others' are." },
};

/** Asks before an order is given; `send(order)` gives it, `done(message)` hears of it. */
export function orders(send, done) {
  const { node, form, error } = dialog("order-dialog");
  let kind;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const order = { order: kind, prefix: byId("order-prefix").value.trim() };
    if (kind === "block") Object.assign(order, { for: byId("order-for").value.trim(), reason: byId("order-reason").value.trim() });
    if ((kind === "block" || kind === "unblock") && byId("order-cluster").checked) order.cluster = true;
    form.querySelector(".main").disabled = true;
    try {
      const { message } = await send(order);
      node.close();
      done(message);
    } catch (refused) {
      setText(error, refused.message);
    } finally {
      form.querySelector(".main").disabled = false;
    }
  });
  return (what, prefix = "", cluster = false, isInCluster = false) => {
    kind = what;
    const { title, button, effect } = KINDS[what];
    setText(byId("order-title"), prefix ? `${title} ${prefix}?` : title);
    setText(byId("order-effect"), effect);
    setText(form.querySelector(".main"), button);
    setText(error, "");
    byId("order-prefix").value = prefix;
    byId("order-prefix").readOnly = Boolean(prefix);
    byId("order-block").hidden = what !== "block";
    byId("order-cluster-line").hidden = !isInCluster;
    byId("order-cluster").checked = cluster;
    byId("order-for").value = what === "block" ? "10m" : "";
    byId("order-reason").value = "";
    node.showModal();
    (prefix ? form.querySelector(".main") : byId("order-prefix")).focus();
  };
}

/** Buttons for what was explained. */
export const buttons = (address, order) => [el("p", {}, el("button", { type: "button", onclick: () => order("block", address) }, "Block…"), " ", el("button", { type: "button", onclick: () => order("allow", address) }, "Allow…"))];
