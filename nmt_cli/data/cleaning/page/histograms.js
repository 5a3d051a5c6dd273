"use strict";
// Histograms with a threshold: what is kept and what is not, and what a threshold elsewhere would keep.

const NS = "http://www.w3.org/2000/svg";
const WIDE = 360, HIGH = 180, LOW = 20, BARS = 40;

const whole = (number) => Math.round(number).toLocaleString("en");
const percent = (part, all) => `${(100 * part / all || 0).toFixed(1)} %`;
const total = (numbers) => numbers.reduce((sum, number) => sum + number, 0);

function drawn(tag, attributes, ...children) {
  const made = document.createElementNS(NS, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  made.append(...children);
  return made;
}

/** Sums of several lists of counts, place by place. */
function summed(lists) {
  const length = Math.max(0, ...lists.map((list) => list.length));
  return Array.from({ length }, (_, place) => total(lists.map((list) => list[place] || 0)));
}

/** Counts in at most as many bars as are drawn: [kept, gone] of each. */
function bars(kept, gone) {
  const length = Math.max(kept.length, gone.length), width = Math.max(1, Math.ceil(length / BARS));
  const count = Math.ceil(length / width);
  const part = (list, bar) => total(list.slice(bar * width, (bar + 1) * width));
  return { width, heights: Array.from({ length: count }, (_, bar) => [part(kept, bar), part(gone, bar)]) };
}

/**
 * A histogram of counts by place; `shape` says what a place is called, which place the threshold is at and on
 * which edge of it (0 or 1), and which places it keeps.
 */
function histogram(title, kept, gone, shape) {
  const card = element("article", { className: "card histogram" }, element("h3", {}, title));
  const { width, heights } = bars(kept, gone), all = total(kept) + total(gone);
  if (!all) {
    card.append(element("p", { className: "soft" }, "There is none."));
    return card;
  }
  const most = Math.max(...heights.map(([low, high]) => low + high)), step = WIDE / heights.length;
  const svg = drawn("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": title });
  const tall = (count) => (HIGH - LOW) * count / most;
  heights.forEach(([low, high], bar) => {
    const from = shape.label(bar * width), to = shape.label((bar + 1) * width - 1);
    const what = `${from === to ? from : `${from} to ${to}`}: ${whole(low)} kept, ${whole(high)} left out`;
    const column = drawn("g", {}, drawn("title", {}, what));
    const at = { x: bar * step, width: Math.max(step - 1, 1) };
    column.append(drawn("rect", { ...at, class: "kept", y: HIGH - LOW - tall(low), height: tall(low) }));
    column.append(
      drawn("rect", { ...at, class: "gone", y: HIGH - LOW - tall(low + high), height: tall(high) }),
    );
    svg.append(column);
  });
  const last = heights.length * width - 1;
  for (const [at, place, anchor] of [[0, 0, "start"], [WIDE, last, "end"]]) {
    svg.append(drawn("text", { x: at, y: HIGH - 4, "text-anchor": anchor }, shape.label(place)));
  }
  const line = drawn("line", { class: "limit", y1: 0, y2: HIGH - LOW });
  svg.append(line);
  const counts = summed([kept, gone]), told = element("output");
  const show = (place) => {
    const stays = total(counts.filter((_, at) => shape.keeps(at, place)));
    for (const end of ["x1", "x2"]) line.setAttribute(end, String((place + shape.edge) * step / width));
    const limit = `${shape.setting} = ${shape.label(place)}`;
    told.textContent = `${limit} would keep ${whole(stays)} of ${whole(all)}, ${percent(stays, all)}`;
  };
  const now = Math.min(shape.now ?? last, last);
  const slider = element("input", { type: "range", min: "0", max: String(last), value: String(now) });
  slider.setAttribute("aria-label", shape.setting);
  slider.oninput = () => show(Number(slider.value));
  card.append(svg, slider, told);
  show(now);
  return card;
}
