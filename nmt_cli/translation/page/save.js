"use strict";
// The drawing of the chosen heads as a file: SVG for papers, PNG for slides.

const LABEL = 150; // pixels for the tokens of each side
const BETWEEN = 200; // pixels between the two sides of the lines
const FONT = "14px sans-serif";

/** Return the drawing as lines, squares and texts, in pixels on white, and its size. */
function shapes() {
  const of = map();
  const heads = [...state.heads];
  const [queries, keys] = sides();
  const texts = (side, made) => side.map(({ text }, i) => ({ text: spelt(text), ...made(i) }));
  const row = (i) => (i + 0.5) * ROW + 5;
  const left = texts(queries, (i) => ({ x: LABEL - 6, y: row(i), align: "end" }));
  if (state.view === "heat") {
    const weights = mean(of, state.layer, heads);
    const squares = weights.map((share, i) => ({
      paint: plain(common(heads, of)),
      opacity: Math.sqrt(share),
      x: LABEL + (i % of.columns) * ROW,
      y: Math.floor(i / of.columns) * ROW,
    }));
    const below = texts(keys, (i) => ({
      x: LABEL + (i + 0.5) * ROW + 5,
      y: of.rows * ROW + 6,
      align: "end",
      turned: true,
    }));
    const [width, height] = [LABEL + of.columns * ROW + 10, of.rows * ROW + LABEL];
    return { width, height, squares, strokes: [], texts: [...left, ...below] };
  }
  const { query, key } = pinned ?? { query: null, key: null };
  const isChosen = (q, k) => (query === null && key === null) || q === query || (query === null && k === key);
  const paints = range(of.heads).map((head) => plain(colour(head, of.heads)));
  const drawn = strokes(ROW, of, state.layer, heads, isChosen).map((one) => ({
    ...one,
    paint: paints[one.head],
  }));
  const right = texts(keys, (i) => ({ x: LABEL + BETWEEN + 6, y: row(i), align: "start" }));
  const height = Math.max(of.rows, of.columns) * ROW + 10;
  return { width: 2 * LABEL + BETWEEN, height, squares: [], strokes: drawn, texts: [...left, ...right] };
}

/** Return the drawing as an SVG file. */
function asSvg({ width, height, squares, strokes, texts }) {
  const escaped = (text) => text.replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);
  const parts = [
    ...squares.map(({ paint, opacity, x, y }) =>
      `<rect x="${x}" y="${y}" width="${ROW}" height="${ROW}" fill="${paint}" fill-opacity="${
        opacity.toFixed(3)
      }"/>`
    ),
    ...strokes.map(({ paint, opacity, from, to }) =>
      `<line x1="${LABEL}" y1="${from}" x2="${LABEL + BETWEEN}" y2="${to}" stroke="${paint}" ` +
      `stroke-width="${thickness(ROW)}" stroke-opacity="${opacity.toFixed(3)}"/>`
    ),
    ...texts.map(({ text, x, y, align, turned }) =>
      `<text x="${x}" y="${y}" text-anchor="${align}"${turned ? ` transform="rotate(-90 ${x} ${y})"` : ""}>` +
      `${escaped(text)}</text>`
    ),
  ];
  const space = element("template", { innerHTML: "<svg>" }).content.firstChild.namespaceURI;
  const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
  const head = `<svg xmlns="${space}" ${size} style="font: ${FONT}">`;
  return `${head}\n<rect width="100%" height="100%" fill="white"/>\n${parts.join("\n")}\n</svg>\n`;
}

/** Return the drawing on a canvas, twice as large, so that it is sharp on slides. */
function asCanvas({ width, height, squares, strokes, texts }) {
  const canvas = element("canvas", { width: 2 * width, height: 2 * height });
  const context = canvas.getContext("2d");
  context.scale(2, 2);
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height);
  for (const { paint, opacity, x, y } of squares) {
    Object.assign(context, { globalAlpha: opacity, fillStyle: paint });
    context.fillRect(x, y, ROW, ROW);
  }
  for (const { paint, opacity, from, to } of strokes) {
    Object.assign(context, { globalAlpha: opacity, strokeStyle: paint, lineWidth: thickness(ROW) });
    context.beginPath();
    context.moveTo(LABEL, from);
    context.lineTo(LABEL + BETWEEN, to);
    context.stroke();
  }
  Object.assign(context, { globalAlpha: 1, fillStyle: "black", font: FONT });
  for (const { text, x, y, align, turned } of texts) {
    context.save();
    context.translate(x, y);
    if (turned) context.rotate(-Math.PI / 2);
    context.textAlign = align;
    context.fillText(text, 0, 0);
    context.restore();
  }
  return canvas;
}

function download(blob, ending) {
  const name = `attention-${state.kind}-${state.sentence + 1}-layer-${state.layer + 1}.${ending}`;
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

const saveSvg = () => download(new Blob([asSvg(shapes())], { type: "image/svg+xml" }), "svg");
const savePng = () => asCanvas(shapes()).toBlob((blob) => download(blob, "png"));
