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

/**
 * Rows of a table, one for each thing. Rows whose key stays keep their elements, so that a button that has the focus keeps it.
 * A cell is a text, or `{ key, make }`: made anew only when its key changes.
 */
export function rows(table, things, empty) {
  const body = table.tBodies[0];
  const columns = table.tHead.rows[0].cells;
  const there = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const wanted = things.map(({ key, cells }) => {
    const row = there.get(key) ?? el("tr", { "data-key": key });
    there.delete(key);
    cells.forEach((cell, at) => {
      const node = row.cells[at] ?? row.appendChild(at ? el("td") : el("th", { scope: "row" }));
      node.className = columns[at].className;
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
