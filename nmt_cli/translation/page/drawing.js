"use strict";
// Weights, their colours, and how they are drawn on a canvas.

const FULL = 255; // what a weight of 1 is in the data
const FAINT = 0.02; // lighter lines than this are not drawn
const SEEN = 0.1; // how opaque a query's strongest line is at least, however many share its weight
const THINNEST = 0.5; // line in pixels; others would hardly show in the overview
const HINT = 1 / 12; // how much is left of lines that do not matter now

const range = (count) => Array.from({ length: count }, (_, i) => i);

/** One of the weights of `of`: their shape, and a byte for each. */
function weight(of, layer, head, query, key) {
  return of.bytes[((layer * of.heads + head) * of.rows + query) * of.columns + key] / FULL;
}

/** The mean of some heads, a row for each query. */
function mean(of, layer, heads) {
  return range(of.rows * of.columns).map((i) => {
    const query = Math.floor(i / of.columns);
    const key = i % of.columns;
    return heads.reduce((sum, head) => sum + weight(of, layer, head, query, key), 0) / heads.length;
  });
}

/** Of one head, as opaque as asked. */
function colour(head, heads, opacity = 1) {
  const lightness = (isDark() ? 0.74 : 0.58) + (head % 2 ? 0.06 : -0.02);
  return `oklch(${lightness} 0.17 ${(25 + (360 * head) / heads) % 360} / ${opacity})`;
}

/** Of some heads together: that of the only one, or the page's own. */
function common(heads, of) {
  if (heads.length === 1) return colour(heads[0], of.heads);
  return getComputedStyle(document.querySelector("#scale canvas")).color;
}

/** A pixel for each number, as opaque as `shade` has it; the root lets small weights be seen. */
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
 * A line for each weight, as opaque as it is large; tokens are `step` pixels apart. Where a query looks
 * everywhere, all of its lines are made stronger alike.
 */
function lines(canvas, width, step, of, layer, heads, matters = () => true) {
  const height = Math.max(of.rows, of.columns) * step;
  const ratio = Math.min(devicePixelRatio || 1, 16000 / height);
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.lineWidth = Math.max(THINNEST, Math.min(2, step / 6));
  heads.forEach((head, place) => {
    const shift = (step / 3) * ((place + 0.5) / heads.length - 0.5);
    context.strokeStyle = colour(head, of.heads);
    for (let query = 0; query < of.rows; query++) {
      const shares = range(of.columns).map((key) => weight(of, layer, head, query, key));
      const boost = Math.max(1, SEEN / Math.max(1 / FULL, ...shares));
      shares.forEach((share, key) => {
        const opacity = share * boost;
        if (opacity < FAINT) return;
        context.globalAlpha = matters(query, key) ? opacity : opacity * HINT;
        context.beginPath();
        context.moveTo(0, (query + 0.5) * step + shift);
        context.lineTo(width, (key + 0.5) * step + shift);
        context.stroke();
      });
    }
  });
}
