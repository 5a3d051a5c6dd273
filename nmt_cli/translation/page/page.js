"use strict";
// The attention page. Its data is written by attention_page.py.

const { languages, pairs } = pageData();
const THUMB = 52; // size of a drawing in the overview, in pixels
const KINDS = {
  encoder: {
    name: "Encoder self-attention",
    sides: ["source", "the same source"],
    meaning: "Each source token attends to all source tokens.",
  },
  decoder: {
    name: "Decoder self-attention",
    sides: ["written now", "written before"],
    meaning: "Each target token attends to the target tokens before it.",
  },
  cross: {
    name: "Cross-attention",
    sides: ["written now", "source"],
    meaning: "Each target token attends to all source tokens.",
  },
};
const VIEWS = { lines: "Lines", heat: "Heatmap" };

const state = { sentence: 0, kind: "cross", view: "lines", layer: 0, heads: new Set() };

// The data of the chosen sentence

/** Return the shape and weights of one kind of attention in the chosen sentence. */
function map(kind = state.kind) {
  const stored = pairs[state.sentence].maps[kind];
  stored.bytes ??= Uint8Array.from(atob(stored.weights), (c) => c.charCodeAt(0));
  const [layers, heads, rows, columns] = stored.shape;
  return { layers, heads, rows, columns, bytes: stored.bytes };
}

/** Return the queries and keys of the chosen kind. `isMark` is true for special tokens. */
function sides() {
  const { source, target, ended } = pairs[state.sentence];
  const piece = (text, language, isMark) => ({ text, language: languages[language], isMark });
  const from = source.map((text, i) => piece(text, 0, i === source.length - 1));
  const to = target.map((text, i) => piece(text, 1, ended && i === target.length - 1));
  const before = [piece("<s>", 1, true), ...to.slice(0, -1)];
  return { encoder: [from, from], decoder: [to, before], cross: [to, from] }[state.kind];
}

// The parts of the page

function showSentence() {
  const { source, target, ended, alignment } = pairs[state.sentence];
  byId("chosen").value = state.sentence;
  const rows = [
    ["source", source.slice(0, -1)],
    ["target", ended ? target.slice(0, -1) : target],
  ];
  const shown = rows.map(([side, texts], i) => {
    const made = texts.map((text, j) => token({ text, language: languages[i] }, side, j));
    byId(`${side}-pieces`).replaceChildren(...made);
    return made;
  });
  const point = (side, index) => {
    const partners = alignment.map((from, to) => [from, to]).filter((pair) => pair[side] === index);
    shown.forEach((made, i) =>
      made.forEach((one, j) => {
        one.classList.toggle("on", (i === side && j === index) || partners.some((pair) => pair[i] === j));
      })
    );
  };
  shown.forEach((made, side) =>
    made.forEach((one, index) => {
      one.onpointerenter = () => point(side, index);
      one.onpointerleave = () => point(side, -1);
    })
  );
}

function showChoices() {
  const choices = (names, key) =>
    Object.entries(names).map(([value, name]) =>
      button(name.name ?? name, state[key] === value, () => change({ [key]: value }))
    );
  byId("kinds").replaceChildren(...choices(KINDS, "kind"));
  byId("views").replaceChildren(...choices(VIEWS, "view"));
}

let overview = ""; // identifies the drawn overview, so that it is drawn again only after a change

function showOverview() {
  const of = map();
  const shown = `${state.sentence} ${state.kind} ${state.view} ${isDark()}`;
  if (shown !== overview) byId("grid").replaceChildren(...thumbnails(of));
  overview = shown;
  for (const made of byId("grid").querySelectorAll("button")) {
    const { layer, head } = made.dataset;
    const chosen = head ? state.heads.has(Number(head)) : state.heads.size === of.heads;
    made.setAttribute("aria-pressed", state.layer === Number(layer) && chosen);
  }
}

function thumbnails(of) {
  byId("grid").style.gridTemplateColumns = `max-content repeat(${of.heads}, minmax(18px, ${THUMB}px))`;
  const cells = [element("span"), ...range(of.heads).map((head) => element("span", {}, `${head + 1}`))];
  for (const layer of range(of.layers)) {
    const whole = button(`Layer ${layer + 1}`, false, () => change({ layer, heads: range(of.heads) }), {
      className: "layer",
    });
    whole.dataset.layer = layer;
    cells.push(whole);
    for (const head of range(of.heads)) {
      const canvas = element("canvas");
      const title = `Layer ${layer + 1}, head ${head + 1}`;
      if (state.view === "heat") image(canvas, mean(of, layer, [head]), of.columns, colour(head, of.heads));
      else lines(canvas, THUMB, THUMB / Math.max(of.rows, of.columns), of, layer, [head]);
      const one = button(canvas, false, () => change({ layer, heads: [head] }), {
        className: "head",
        title,
        "aria-label": title,
      });
      Object.assign(one.dataset, { layer, head });
      cells.push(one);
    }
  }
  return cells;
}

function showHeads() {
  const of = map();
  const all = state.heads.size === of.heads;
  const chips = range(of.heads).map((head) => {
    const chosen = state.heads.has(head);
    const only = chosen && state.heads.size === 1 ? range(of.heads) : [head];
    const toggled = range(of.heads).filter((other) => state.heads.has(other) !== (other === head));
    const made = button(
      `${head + 1}`,
      chosen,
      (event) => change({ heads: event.shiftKey && toggled.length ? toggled : only }),
      { title: `Show head ${head + 1} only. Shift adds or removes it.` },
    );
    made.style.setProperty("--head", colour(head, of.heads));
    return made;
  });
  byId("heads").replaceChildren(
    button("all heads", all, () => change({ heads: range(of.heads) }), { className: "all" }),
    ...chips,
  );
  const some = [...state.heads].map((head) => head + 1).join(", ");
  const named = all ? "all heads" : `head${state.heads.size > 1 ? "s" : ""} ${some}`;
  byId("heading").textContent = `${KINDS[state.kind].name}, layer ${state.layer + 1}, ${named}`;
  byId("meaning").textContent = KINDS[state.kind].meaning;
}

// The choices

/** Apply new choices. Values that the sentence does not have are corrected. `token` is pinned. */
function change({ token = null, ...choices }) {
  Object.assign(state, choices);
  state.sentence = Math.max(0, Math.min(pairs.length - 1, Math.trunc(state.sentence) || 0));
  if (!(state.kind in KINDS)) state.kind = "cross";
  if (!(state.view in VIEWS)) state.view = "lines";
  const of = map();
  state.layer = Math.max(0, Math.min(of.layers - 1, Math.trunc(state.layer) || 0));
  const heads = [...state.heads].filter((head) => head >= 0 && head < of.heads).sort((a, b) => a - b);
  state.heads = new Set(heads.length ? heads : range(of.heads));
  if ("sentence" in choices || "kind" in choices) {
    pinned = token && existing(token, of);
    pointed = pinned ?? { query: null, key: null };
  }
  show();
  remember();
}

/** Return a query, a key or both as a token to pin, or null if the sentence does not have it. */
function existing({ query, key }, of) {
  const found = (index, count) => (index >= 0 && index < count ? Math.trunc(index) : null);
  const token = { query: found(query, of.rows), key: found(key, of.columns) };
  return token.query === null && token.key === null ? null : token;
}

/** Write the choices into the address. */
function remember() {
  const { sentence, kind, view, layer } = state;
  const numbers = [...state.heads].map((head) => head + 1).join("-");
  const told = { sentence: sentence + 1, kind, view, layer: layer + 1, heads: numbers };
  for (const side of ["query", "key"]) if (pinned && pinned[side] !== null) told[side] = pinned[side] + 1;
  history.replaceState(null, "", `#${new URLSearchParams(told)}`);
}

function show() {
  showSentence();
  showChoices();
  showOverview();
  showHeads();
  showDrawing();
}

/** Return the choices in the address, for example #sentence=2&layer=5&heads=1-4&query=3. */
function asked() {
  const told = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const heads = (told.heads ?? "")
    .split("-")
    .filter(Boolean)
    .map((head) => head - 1);
  const layer = told.layer === undefined ? Infinity : told.layer - 1;
  const token = { query: told.query - 1, key: told.key - 1 };
  return { kind: told.kind, view: told.view, heads, sentence: told.sentence - 1, layer, token };
}

function pressed(event) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("select")) return;
  const of = map();
  const only = state.heads.size === 1 ? [...state.heads][0] : -1;
  const actions = {
    ArrowLeft: () => change({ heads: [Math.max(0, only - 1)] }),
    ArrowRight: () => change({ heads: [Math.min(of.heads - 1, only + 1)] }),
    ArrowUp: () => change({ layer: state.layer - 1 }),
    ArrowDown: () => change({ layer: state.layer + 1 }),
    n: () => change({ sentence: state.sentence + 1 }),
    p: () => change({ sentence: state.sentence - 1 }),
    Escape: () => {
      pinned = null;
      point(null);
      remember();
    },
  };
  if (!actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
}

function main() {
  if (!pairs.length) {
    document.body.replaceChildren(element("p", {}, "This page has no sentences."));
    return;
  }
  const { encoder, decoder, cross } = pairs[0].maps;
  if (!decoder.shape[0]) delete KINDS.decoder; // the decoder has no self-attention
  const layers = `${encoder.shape[0]} + ${cross.shape[0]} layers`;
  byId("model").textContent = `${languages.join(" to ")}, ${layers}, ${encoder.shape[1]} heads`;
  byId("chosen").append(
    ...pairs.map(({ text }, i) => element("option", { value: i }, `${i + 1}. ${spelt(text)}`)),
  );
  byId("chosen").onchange = () => change({ sentence: Number(byId("chosen").value) });
  byId("previous").onclick = () => change({ sentence: state.sentence - 1 });
  byId("next").onclick = () => change({ sentence: state.sentence + 1 });
  document.querySelector("header").append(themeButton(show));
  const drawing = byId("drawing");
  drawing.onpointerover = (event) => {
    const at = position(event.target);
    if (at) point(at);
  };
  drawing.onpointerleave = () => point(null);
  drawing.onclick = () => {
    const same = pinned && pinned.query === pointed.query && pinned.key === pointed.key;
    pinned = same ? null : pointed;
    remember();
  };
  byId("save").append(
    element("button", { type: "button", onclick: saveSvg }, "Save as SVG"),
    element("button", { type: "button", onclick: savePng }, "Save as PNG"),
  );
  addEventListener("keydown", pressed);
  addEventListener("resize", showDrawing);
  addEventListener("hashchange", () => change(asked()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  change(asked());
}

main();
