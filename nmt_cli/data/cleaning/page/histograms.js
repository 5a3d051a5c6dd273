"use strict";
// Histograms of kept and dropped pairs, with a slider that shows the effect of another threshold.

const NS = "http://www.w3.org/2000/svg";
const WIDE = 360, HIGH = 180, LOW = 20, BARS = 40;

const whole = (number) => Math.round(number).toLocaleString("en");
const percent = (part, all) => `${(100 * part / all || 0).toFixed(1)} %`;
const total = (numbers) => numbers.reduce((sum, number) => sum + number, 0);

/** Create an SVG element. */
function svgElement(tag, attributes, ...children) {
  const node = document.createElementNS(NS, tag);
  for (const [key, value] of Object.entries(attributes)) {
    node.setAttribute(key, String(value));
  }
  node.append(...children);
  return node;
}

/** Add several lists of counts, element by element. */
function summed(lists) {
  const length = Math.max(0, ...lists.map((list) => list.length));
  return Array.from({ length }, (_, index) => total(lists.map((list) => list[index] || 0)));
}

/** Combine counts into at most `BARS` bars. Return the counts per bar and the [kept, dropped] pairs of each. */
function bars(kept, dropped) {
  const length = Math.max(kept.length, dropped.length), width = Math.max(1, Math.ceil(length / BARS));
  const count = Math.ceil(length / width);
  const part = (list, bar) => total(list.slice(bar * width, (bar + 1) * width));
  return {
    width,
    heights: Array.from({ length: count }, (_, bar) => [part(kept, bar), part(dropped, bar)]),
  };
}

/**
 * Draw a histogram. `shape` has the name of the setting, the label of each index, the current threshold and
 * its edge (0 or 1) as an index, and a function that tells whether a threshold keeps an index.
 */
function histogram(title, kept, dropped, shape) {
  const card = element("article", { className: "card histogram" }, element("h3", {}, title));
  const { width, heights } = bars(kept, dropped), all = total(kept) + total(dropped);
  if (!all) {
    card.append(element("p", { className: "soft" }, "There are no pairs."));
    return card;
  }
  const highest = Math.max(...heights.map(([low, high]) => low + high)), step = WIDE / heights.length;
  const svg = svgElement("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": title });
  const tall = (count) => (HIGH - LOW) * count / highest;
  heights.forEach(([low, high], bar) => {
    const from = shape.label(bar * width), to = shape.label((bar + 1) * width - 1);
    const tip = `${from === to ? from : `${from} to ${to}`}: ${whole(low)} kept, ${whole(high)} dropped`;
    const column = svgElement("g", {}, svgElement("title", {}, tip));
    const at = { x: bar * step, width: Math.max(step - 1, 1) };
    column.append(svgElement("rect", { ...at, class: "kept", y: HIGH - LOW - tall(low), height: tall(low) }));
    column.append(
      svgElement("rect", { ...at, class: "gone", y: HIGH - LOW - tall(low + high), height: tall(high) }),
    );
    svg.append(column);
  });
  const last = heights.length * width - 1;
  for (const [at, index, anchor] of [[0, 0, "start"], [WIDE, last, "end"]]) {
    svg.append(svgElement("text", { x: at, y: HIGH - 4, "text-anchor": anchor }, shape.label(index)));
  }
  const line = svgElement("line", { class: "limit", y1: 0, y2: HIGH - LOW });
  svg.append(line);
  const counts = summed([kept, dropped]), result = element("output");
  const show = (threshold) => {
    const count = total(counts.filter((_, index) => shape.keeps(index, threshold)));
    for (const end of ["x1", "x2"]) {
      line.setAttribute(end, String((threshold + shape.edge) * step / width));
    }
    const limit = `${shape.setting} = ${shape.label(threshold)}`;
    result.textContent = `${limit} would keep ${whole(count)} of ${whole(all)}, ${percent(count, all)}`;
  };
  const now = Math.min(shape.now ?? last, last);
  const slider = element("input", { type: "range", min: "0", max: String(last), value: String(now) });
  slider.setAttribute("aria-label", shape.setting);
  slider.oninput = () => show(Number(slider.value));
  card.append(svg, slider, result);
  show(now);
  return card;
}
