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
 * Draw a line per weight, with the weight as its opacity. Tokens are `step` pixels apart. If all weights of a
 * query are small, its lines are strengthened by one factor.
 */
function lines(canvas, width, step, of, layer, heads, isRelevant = () => true) {
  const height = Math.max(of.rows, of.columns) * step;
  const ratio = Math.min(devicePixelRatio || 1, 16000 / height);
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.lineWidth = Math.max(THINNEST, Math.min(2, step / 6));
  heads.forEach((head, index) => {
    const shift = (step / 3) * ((index + 0.5) / heads.length - 0.5);
    context.strokeStyle = colour(head, of.heads);
    for (let query = 0; query < of.rows; query++) {
      const shares = range(of.columns).map((key) => weight(of, layer, head, query, key));
      const boost = Math.max(1, SEEN / Math.max(1 / FULL, ...shares));
      shares.forEach((share, key) => {
        const opacity = share * boost;
        if (opacity < FAINT) return;
        context.globalAlpha = isRelevant(query, key) ? opacity : opacity * HINT;
        context.beginPath();
        context.moveTo(0, (query + 0.5) * step + shift);
        context.lineTo(width, (key + 0.5) * step + shift);
        context.stroke();
      });
    }
  });
}
