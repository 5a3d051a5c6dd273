"use strict";
// The drawing of the chosen heads, and the weights of the token under the pointer.

const ROW = 22; // pixels between tokens, as --row in the style
const LISTED = 8; // maximum number of listed weights
const STEPS = 101; // number of colours of the scale
const PATCH = 0.75; // maximum opacity of a patch, so that its text stays readable

let pointed = { query: null, key: null };
let pinned = null;

function showDrawing() {
  const of = map();
  const heads = [...state.heads];
  const [queries, keys] = sides();
  const drawing = state.view === "heat" ? heatmap(of, heads, queries, keys) : lineDrawing(queries, keys);
  byId("drawing").replaceChildren(drawing);
  const steps = range(STEPS).map((i) => i / (STEPS - 1));
  const shade = state.view === "heat" ? Math.sqrt : (share) => share;
  image(byId("scale").querySelector("canvas"), steps, STEPS, common(heads, of), shade);
  showPointed();
}

function lineDrawing(queries, keys) {
  const made = element("div", { className: "lines" });
  const [left, right] = KINDS[state.kind].sides;
  made.append(element("small", {}, left), element("span"), element("small", {}, right));
  made.append(column("queries", "query", queries), element("canvas"), column("keys", "key", keys));
  return made;
}

function heatmap(of, heads, queries, keys) {
  const room = byId("drawing").clientWidth - 170;
  const cell = Math.max(13, Math.min(28, Math.floor(room / of.columns)));
  const canvas = element("canvas");
  const plane = element("div", { className: "plane" }, canvas);
  image(canvas, mean(of, state.layer, heads), of.columns, common(heads, of));
  Object.assign(canvas.style, { width: `${cell * of.columns}px`, height: `${cell * of.rows}px` });
  plane.append(element("div", { className: "across" }), element("div", { className: "down" }));
  plane.onpointermove = (event) => {
    const box = canvas.getBoundingClientRect();
    const at = (offset, count) => Math.max(0, Math.min(count - 1, Math.floor(offset / cell)));
    point({ query: at(event.clientY - box.top, of.rows), key: at(event.clientX - box.left, of.columns) });
  };
  const above = column("keys", "key", keys);
  [...above.children].forEach((one, i) => {
    one.style.left = `${(i + 0.5) * cell}px`;
  });
  const longest = Math.max(...keys.map(({ text }) => Math.min(text.length, 20)));
  above.style.height = `${24 + 7 * longest}px`;
  const [left, right] = KINDS[state.kind].sides;
  const corner = element("small", {}, `${right} →`, element("br"), `${left} ↓`);
  const made = element(
    "div",
    { className: "heat" },
    corner,
    above,
    column("queries", "query", queries),
    plane,
  );
  made.style.setProperty("--row", `${cell}px`);
  made.style.fontSize = `${Math.min(14, cell - 1)}px`;
  made.style.paddingRight = `${5 * longest}px`;
  return made;
}

// The token under the pointer

function showPointed() {
  const of = map();
  const heads = [...state.heads];
  const { query, key } = pointed;
  for (const one of byId("drawing").querySelectorAll(".token")) {
    const [side, index] = [one.dataset.side, Number(one.dataset.index)];
    one.classList.toggle("on", pointed[side] === index);
    one.style.backgroundImage = state.view === "lines" ? stripes(of, heads, side, index) : "";
  }
  if (state.view === "lines") {
    const isRelevant = (q, k) =>
      (query === null && key === null) || q === query || (query === null && k === key);
    const canvas = byId("drawing").querySelector("canvas");
    lines(canvas, parseInt(getComputedStyle(canvas).width), ROW, of, state.layer, heads, isRelevant);
  } else {
    crosshair(of, query, key);
  }
  showReadout(of, heads, query, key);
}

/** Return the background of a token opposite the pointer: a stripe per head, as opaque as its weight. */
function stripes(of, heads, side, index) {
  const [query, key] = side === "key"
    ? [pointed.query, index]
    : [index, pointed.query === null ? pointed.key : null];
  if (query === null || key === null) return "";
  const stops = heads.map((head, i) => {
    const paint = colour(head, of.heads, PATCH * weight(of, state.layer, head, query, key));
    return `${paint} ${(100 * i) / heads.length}% ${(100 * (i + 1)) / heads.length}%`;
  });
  return `linear-gradient(to right, ${stops.join(", ")})`;
}

function crosshair(of, query, key) {
  const [across, down] = ["across", "down"].map((name) => byId("drawing").querySelector(`.${name}`));
  const share = (index, count) => ({ from: `${(100 * index) / count}%`, size: `${100 / count}%` });
  const row = share(query, of.rows);
  const side = share(key, of.columns);
  Object.assign(across.style, {
    display: query === null ? "none" : "block",
    left: 0,
    right: 0,
    top: row.from,
    height: row.size,
  });
  Object.assign(down.style, {
    display: key === null ? "none" : "block",
    top: 0,
    bottom: 0,
    left: side.from,
    width: side.size,
  });
}

function showReadout(of, heads, query, key) {
  const [queries, keys] = sides();
  const byQuery = query !== null;
  if (!byQuery && key === null) {
    byId("subject").textContent = "Point at a token to see its weights. Click to pin them.";
    byId("readout").replaceChildren();
    return;
  }
  const writes = state.kind === "encoder" ? "" : "While writing ";
  const subject = byQuery
    ? [writes, token(queries[query]), writes ? ", the decoder attends to" : " attends to"]
    : [token(keys[key]), writes ? " is attended to while writing" : " is attended to by"];
  byId("subject").replaceChildren(...subject);
  const entries = (byQuery ? keys : queries).map((piece, i) => {
    const [q, k] = byQuery ? [query, i] : [i, key];
    const shares = heads.map((head) => weight(of, state.layer, head, q, k) / heads.length);
    return {
      piece,
      shares,
      total: shares.reduce((sum, share) => sum + share, 0),
      chosen: byQuery && i === key,
    };
  });
  const ranked = entries.filter(({ total }) => total > 0).sort((a, b) => b.total - a.total);
  const listed = ranked.filter(({ chosen }, i) => i < LISTED || chosen);
  byId("readout").replaceChildren(
    ...listed.map(({ piece, shares, total, chosen }) => {
      const bar = element(
        "span",
        { className: "bar" },
        ...shares.map((share, i) => {
          const part = element("i");
          Object.assign(part.style, { width: `${100 * share}%`, background: colour(heads[i], of.heads) });
          return part;
        }),
      );
      const name = token(piece);
      name.classList.toggle("on", chosen);
      const percent = total < 0.005 ? "<1 %" : `${Math.round(100 * total)} %`;
      return element("li", {}, name, element("span", { className: "percent" }, percent), bar);
    }),
  );
}

function point(at) {
  const next = at ?? pinned ?? { query: null, key: null };
  if (next.query === pointed.query && next.key === pointed.key) return;
  pointed = next;
  showPointed();
}

/** Return the query or key of a token. */
function position(target) {
  const one = target.closest?.("[data-side]");
  return one && { query: null, key: null, [one.dataset.side]: Number(one.dataset.index) };
}
