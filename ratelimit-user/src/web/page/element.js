// Elements by hand: text is always text, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return node;
}

export const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
export const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
export const byId = (id) => document.getElementById(id);

/** Changes the text of a node only if it is another: nothing is read out or laid out for nothing. */
export function setText(node, text) {
  if (node.textContent !== String(text)) node.textContent = text;
}

/** A part of a whole as a bar, for eyes alone: the number stands beside it. */
export function bar(part, kind = "") {
  const inner = el("i");
  inner.style.setProperty("--part", `${Math.round(Math.min(1, Math.max(0, part)) * 100)}%`);
  return el("span", { class: `bar ${kind}`, "aria-hidden": "true" }, inner);
}

/** A table shows this many rows, and the others on request: no table has a scroll bar of its own. */
const FEW = 12;

/** The button below a table that shows all of its rows, or few again. */
function rest(table, things, draw) {
  const button = table.parentNode.querySelector(":scope > .rest") ?? table.parentNode.appendChild(el("button", { type: "button", class: "link rest", hidden: true }));
  button.hidden = things.length <= FEW;
  setText(button, table.dataset.all ? `The first ${FEW}` : `All ${things.length}`);
  button.onclick = () => { table.dataset.all = table.dataset.all ? "" : "all"; draw(); };
  return table.dataset.all ? things : things.slice(0, FEW);
}

/** Makes a table narrow where it has less room than its columns take (`data-room`, in pixels). */
const rooms = new ResizeObserver((all) => {
  for (const { target, contentRect } of all) for (const table of target.querySelectorAll(":scope > table")) table.classList.toggle("narrow", contentRect.width < Number(table.dataset.room));
});

/**
 * Rows of a table, one for each thing. Rows whose key stays keep their elements, so that a button that has the focus keeps it.
 * A cell is a text, or `{ key, make }`: made anew only when its key changes. Where there is no room for columns, each cell has its column's name.
 */
export function rows(table, all, empty) {
  const body = table.tBodies[0];
  const columns = table.tHead.rows[0].cells;
  if (table.dataset.room) rooms.observe(table.parentNode);
  const things = rest(table, all, () => rows(table, all, empty));
  const there = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const wanted = things.map(({ key, cells }) => {
    const row = there.get(key) ?? el("tr", { "data-key": key, role: "row" });
    there.delete(key);
    cells.forEach((cell, at) => {
      const node = row.cells[at] ?? row.appendChild(at ? el("td", { role: "cell" }) : el("th", { scope: "row", role: "rowheader" }));
      node.className = columns[at].className;
      node.dataset.column = columns[at].querySelector(".hidden") ? "" : columns[at].textContent;
      if (cell && typeof cell === "object") {
        if (node.dataset.cell !== cell.key) {
          node.dataset.cell = cell.key;
          node.replaceChildren(...[cell.make()].flat());
        }
      } else {
        delete node.dataset.cell;
        setText(node, cell ?? "");
      }
    });
    return row;
  });
  if (!wanted.length) {
    there.delete("empty");
    wanted.push(body.querySelector("[data-key=empty]") ?? el("tr", { "data-key": "empty" }, el("td", { colspan: columns.length, class: "empty" }, empty)));
  }
  there.forEach((row) => row.remove());
  wanted.forEach((row, at) => body.rows[at] !== row && body.insertBefore(row, body.rows[at] ?? null));
}

/** Terms and what they are; as in rows, only what changes is made anew. */
export function terms(list, pairs) {
  const wanted = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "");
  while (list.children.length > wanted.length * 2) list.lastChild.remove();
  wanted.forEach(([term, value], at) => {
    const dt = list.children[at * 2] ?? list.appendChild(el("dt"));
    const dd = list.children[at * 2 + 1] ?? list.appendChild(el("dd"));
    setText(dt, term);
    if (value && typeof value === "object") {
      if (dd.dataset.cell !== value.key) {
        dd.dataset.cell = value.key;
        dd.replaceChildren(...[value.make()].flat());
      }
    } else {
      delete dd.dataset.cell;
      setText(dd, value);
    }
  });
}
