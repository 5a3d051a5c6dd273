"use strict";
// Weights, their colours, and their drawing on a canvas.

const FULL = 255; // the byte of a weight of 1
const FAINT = 0.02; // minimum opacity of a line
const SEEN = 0.1; // minimum opacity of the strongest line of a query
const THINNEST = 0.5; // minimum line width in pixels, for the overview
const HINT = 1 / 12; // factor on the opacity of irrelevant lines

const range = (count) => Array.from({ length: count }, (_, i) => i);

/** Return one weight of `of`, which has their shape and one byte per weight. */
function weight(of, layer, head, query, key) {
  return of.bytes[((layer * of.heads + head) * of.rows + query) * of.columns + key] / FULL;
}

/** Return the mean weights of `heads`, one row per query. */
function mean(of, layer, heads) {
  return range(of.rows * of.columns).map((i) => {
    const query = Math.floor(i / of.columns);
    const key = i % of.columns;
    return heads.reduce((sum, head) => sum + weight(of, layer, head, query, key), 0) / heads.length;
  });
}

/** Return the colour of one head. */
function colour(head, heads, opacity = 1) {
  const lightness = (isDark() ? 0.74 : 0.58) + (head % 2 ? 0.06 : -0.02);
  return `oklch(${lightness} 0.17 ${(25 + (360 * head) / heads) % 360} / ${opacity})`;
}

/** Return the colour of several heads: that of the only head, or the accent colour of the page. */
function common(heads, of) {
  if (heads.length === 1) return colour(heads[0], of.heads);
  return getComputedStyle(document.querySelector("#scale canvas")).color;
}

/** Draw one pixel per number with the opacity `shade(number)`. The square root makes small weights visible. */
function image(canvas, numbers, columns, paint, shade = Math.sqrt) {
  canvas.width = columns;
  canvas.height = numbers.length / columns;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = paint;
  context.fillRect(0, 0, 1, 1);
  const [red, green, blue] = context.getImageData(0, 0, 1, 1).data;
  const pixels = new ImageData(canvas.width, canvas.height);
  numbers.forEach((share, i) => pixels.data.set([red, green, blue, Math.round(255 * shade(share))], 4 * i));
  context.putImageData(pixels, 0, 0);
}

/**
 * Return a line per weight, with the weight as its opacity. Tokens are `step` pixels apart. If all weights of a
 * query are small, its lines are strengthened by one factor.
 */
function strokes(step, of, layer, heads, isRelevant) {
  const made = [];
  heads.forEach((head, index) => {
    const shift = (step / 3) * ((index + 0.5) / heads.length - 0.5);
    for (let query = 0; query < of.rows; query++) {
      const shares = range(of.columns).map((key) => weight(of, layer, head, query, key));
      const boost = Math.max(1, SEEN / Math.max(1 / FULL, ...shares));
      shares.forEach((share, key) => {
        const opacity = share * boost * (isRelevant(query, key) ? 1 : HINT);
        if (share * boost < FAINT) return;
        made.push({ head, opacity, from: (query + 0.5) * step + shift, to: (key + 0.5) * step + shift });
      });
    }
  });
  return made;
}

/** Return the width of the lines of `strokes` in pixels. */
const thickness = (step) => Math.max(THINNEST, Math.min(2, step / 6));

/** Draw `strokes` on a canvas, from its left to its right edge. */
function lines(canvas, width, step, of, layer, heads, isRelevant = () => true) {
  const height = Math.max(of.rows, of.columns) * step;
  const ratio = Math.min(devicePixelRatio || 1, 16000 / height);
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.lineWidth = thickness(step);
  for (const { head, opacity, from, to } of strokes(step, of, layer, heads, isRelevant)) {
    context.strokeStyle = colour(head, of.heads);
    context.globalAlpha = opacity;
    context.beginPath();
    context.moveTo(0, from);
    context.lineTo(width, to);
    context.stroke();
  }
}

/** Return a colour as other programs read it, such as "rgb(1, 2, 3)". */
function plain(paint) {
  const canvas = element("canvas", { width: 1, height: 1 });
  image(canvas, [1], 1, paint);
  const [red, green, blue] = canvas.getContext("2d").getImageData(0, 0, 1, 1).data;
  return `rgb(${red}, ${green}, ${blue})`;
}
