"use strict";
const view = { axis: "step", zoom: null, hover: null, touched: 0 };
const AXES = { step: "Steps", tokens: "Target tokens", hours: "Hours" };

// ---- Elements

/** Append a new element to `parent` and return it. */
function put(parent, tag, properties, ...children) {
  const made = element(tag, properties, ...children);
  parent.append(made);
  return made;
}

/** Append a new SVG element to `parent` and return it. */
function draw(parent, tag, attributes, text = "") {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  parent.append(node);
  return node;
}

const colour = (index) => `var(--c${index % 6})`;

// ---- Numbers

const whole = (value) => Math.round(value).toLocaleString("en");

function short(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e9) return trim(value / 1e9) + "G";
  if (size >= 1e6) return trim(value / 1e6) + "M";
  if (size >= 1e4) return trim(value / 1e3) + "k";
  if (size < 1e-3) return value.toExponential(1).replace(".0e", "e");
  return trim(value);
}

const trim = (value) => String(Number(value.toPrecision(4)));

function precise(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e3) return whole(value);
  // A linear schedule ends at 0, and "0.000" looks like a rounded value.
  if (size === 0) return "0";
  if (size < 1e-2) return value.toExponential(2);
  return value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 3);
}

const score = (value) => value?.toFixed(Math.abs(value) < 2 ? 4 : 2) ?? "–";

function time(seconds) {
  // The same as `duration` in units.py.
  const units = [[2 * 86400, 86400, "days"], [3600, 3600, "h"], [60, 60, "min"], [0, 1, "s"]];
  const [, size, unit] = units.find(([least]) => seconds >= least), value = seconds / size;
  return `${value < 9.95 ? Number(value.toFixed(1)) : whole(value)} ${unit}`;
}

const last = (list) => (list.length ? list[list.length - 1] : null);
const known = (list) => list.filter((value) => value !== null);

// ---- Tables

function table(parent, head, rows, className = "") {
  const box = put(parent, "table", { className });
  if (head.length) {
    const line = put(put(box, "thead", {}), "tr", {});
    for (const text of head) put(line, "th", {}, text);
  }
  const body = put(box, "tbody", {});
  for (const { cells, best } of rows) {
    const line = put(body, "tr", { className: best ? "best" : "" });
    for (const text of cells) put(line, "td", {}, text);
  }
  return box;
}

// ---- Curves

const SIZE = { height: 216, left: 50, right: 12, top: 8, bottom: 24 };

function fullRange() {
  const ends = CHARTS.flatMap((chart) => chart.series).map((line) => last(line.at[view.axis]) || 0);
  return [0, Math.max(...ends, 1e-9)];
}

function thin(series, range, bins) {
  // Points on the same few pixels become one. Zooming in separates them.
  const points = [], width = (range[1] - range[0]) / bins;
  let bin = null;
  series.at[view.axis].forEach((x, i) => {
    const y = series.mean[i];
    if (y === null || y === undefined || x < range[0] - width || x > range[1] + width) return;
    const number = Math.floor((x - range[0]) / width);
    const low = series.low[i] ?? y, high = series.high[i] ?? y;
    if (series.dots || number !== bin) {
      points.push({ x, y, low, high, count: 1 });
      bin = number;
    } else {
      const point = last(points);
      point.y += (y - point.y) / ++point.count;
      point.x += (x - point.x) / point.count;
      point.low = Math.min(point.low, low);
      point.high = Math.max(point.high, high);
    }
  });
  return points;
}

function extent(chart, lines) {
  const inside = lines.flatMap((line) => line.points);
  let lows = inside.map((p) => (chart.spikes ? p.low : p.y)),
    highs = inside.map((p) => (chart.spikes ? p.high : p.y));
  if (chart.log) {
    lows = lows.filter((y) => y > 0);
    highs = highs.filter((y) => y > 0);
  }
  if (!lows.length) return null;
  let low = Math.min(...lows), high = Math.max(...highs);
  if (chart.cut && !view.zoom && highs.length > 60) {
    // The first steps would flatten all others.
    high = highs.sort((a, b) => a - b)[Math.floor(highs.length * 0.97)];
  }
  if (chart.zero) low = 0;
  if (chart.log) {
    const room = Math.max(Math.log10(high / low) * 0.06, 0.02);
    return [low / 10 ** room, high * 10 ** room];
  }
  const room = (high - low || Math.abs(high) || 1) * 0.07;
  return [chart.zero ? 0 : Math.max(low - room, Math.min(low, 0)), high + room];
}

function ticks(range, count) {
  const rough = (range[1] - range[0]) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const found = [];
  for (let i = Math.ceil(range[0] / step); i * step <= range[1] * (1 + 1e-9); i++) found.push(i * step);
  return found.map((value) => Number(value.toPrecision(10)));
}

function logTicks(range) {
  const found = [];
  for (let power = Math.floor(Math.log10(range[0])); power <= Math.log10(range[1]); power++) {
    for (const factor of [1, 2, 5]) found.push(factor * 10 ** power);
  }
  const inside = found.filter((value) => value >= range[0] && value <= range[1]);
  if (inside.length < 3) return ticks(range, 5);
  return inside.length > 7 ? inside.filter((value) => /^1/.test(value.toExponential())) : inside;
}

function scales(chart, range, extents) {
  const wide = chart.width - SIZE.left - SIZE.right, high = SIZE.height - SIZE.top - SIZE.bottom;
  const level = chart.log ? Math.log10 : (y) => y;
  const [low, top] = extents.map(level);
  return {
    x: (x) => SIZE.left + ((x - range[0]) / (range[1] - range[0])) * wide,
    y: (y) =>
      SIZE.top + (1 - (level(Math.max(y, chart.log ? extents[0] / 10 : y)) - low) / (top - low)) * high,
    back: (pixel) => range[0] + ((pixel - SIZE.left) / wide) * (range[1] - range[0]),
  };
}

function frame(chart, range, extents) {
  const { svg, width } = chart, to = chart.to, bottom = SIZE.height - SIZE.bottom;
  for (const y of chart.log ? logTicks(extents) : ticks(extents, 5)) {
    draw(svg, "line", { class: "grid", x1: SIZE.left, x2: width - SIZE.right, y1: to.y(y), y2: to.y(y) });
    draw(svg, "text", { x: SIZE.left - 8, y: to.y(y) + 4, "text-anchor": "end" }, short(y));
  }
  draw(svg, "line", { class: "base", x1: SIZE.left, x2: width - SIZE.right, y1: bottom, y2: bottom });
  for (const x of ticks(range, Math.max(2, Math.floor(width / 110)))) {
    const anchor = to.x(x) > width - 30 ? "end" : "middle";
    draw(svg, "text", { x: to.x(x), y: SIZE.height - 6, "text-anchor": anchor }, short(x));
  }
}

const path = (points, to, y) =>
  points.map((p, i) => `${i ? "L" : "M"}${to.x(p.x).toFixed(1)} ${to.y(p[y]).toFixed(1)}`).join("");

function curve(chart, line) {
  const { points, series } = line, { svg, to } = chart, clip = `url(#${chart.id})`;
  if (!series.dots && points.length > 1) {
    const back = [...points].reverse();
    const area = `${path(points, to, "high")}${path(back, to, "low").replace("M", "L")}Z`;
    draw(svg, "path", { d: area, fill: series.colour, opacity: 0.16, "clip-path": clip });
  }
  const stroke = { stroke: series.colour, "stroke-width": 1.8, "stroke-linejoin": "round" };
  draw(svg, "path", { d: path(points, to, "y"), fill: "none", ...stroke, "clip-path": clip });
  if (points.length === 1 || (series.dots && points.length <= 60)) {
    for (const p of points) {
      draw(svg, "circle", { cx: to.x(p.x), cy: to.y(p.y), r: 2.8, fill: series.colour, "clip-path": clip });
    }
  }
}

function markBest(chart, line) {
  const top = line.points.reduce((best, p) => (best && best.y >= p.y ? best : p), null);
  if (!top) return;
  const x = chart.to.x(top.x), y = chart.to.y(top.y), left = x > chart.width - 120;
  const stroke = { stroke: line.series.colour, "stroke-width": 1.8 };
  draw(chart.svg, "circle", { cx: x, cy: y, r: 5.5, fill: "none", ...stroke });
  const beside = { x: x + (left ? -10 : 10), "text-anchor": left ? "end" : "start" };
  draw(chart.svg, "text", { class: "best", y: y + 19, ...beside }, `best ${score(top.y)}`);
}

function render(chart) {
  const { svg } = chart, range = view.zoom || fullRange();
  chart.width = svg.clientWidth || 460;
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${chart.width} ${SIZE.height}`);
  chart.lines = chart.series.map((series) => ({ series, points: thin(series, range, chart.width / 3) }));
  const extents = extent(chart, chart.lines);
  chart.nothing.hidden = Boolean(extents);
  svg.style.display = extents ? "" : "none";
  if (!extents) return;
  chart.to = scales(chart, range, extents);
  frame(chart, range, extents);
  const clip = draw(draw(svg, "defs", {}), "clipPath", { id: chart.id });
  draw(clip, "rect", {
    x: SIZE.left,
    y: SIZE.top - 4,
    width: Math.max(chart.width - SIZE.left - SIZE.right + 4, 1),
    height: SIZE.height - SIZE.top - SIZE.bottom + 4,
  });
  for (const line of chart.lines) curve(chart, line);
  if (chart.best) { for (const line of chart.lines) markBest(chart, line); }
  const height = SIZE.height - SIZE.top - SIZE.bottom, ends = { y1: SIZE.top, y2: SIZE.top + height };
  chart.zone = draw(svg, "rect", { class: "zone", x: 0, y: SIZE.top, width: 0, height });
  chart.cross = draw(svg, "line", { class: "cross", ...ends, visibility: "hidden" });
  chart.spots = chart.lines.map((line) =>
    draw(svg, "circle", { r: 3.6, fill: line.series.colour, visibility: "hidden" })
  );
  point(chart);
}

function nearest(points, x) {
  return points.reduce((best, p) => (best && Math.abs(best.x - x) <= Math.abs(p.x - x) ? best : p), null);
}

function point(chart) {
  if (!chart.to) return;
  const at = view.hover;
  chart.cross.setAttribute("visibility", at === null ? "hidden" : "visible");
  if (at !== null) { for (const end of ["x1", "x2"]) chart.cross.setAttribute(end, chart.to.x(at)); }
  chart.lines.forEach((line, i) => {
    const found = at === null ? last(line.points) : nearest(line.points, at);
    // The points depend on the width of the window, the newest value must not.
    const newest = line.series.latest ?? last(known(line.series.mean));
    chart.values[i].textContent = found ? precise(at === null ? newest : found.y) : "";
    const spot = chart.spots[i];
    spot.setAttribute(
      "visibility",
      at === null || !found || chart.to.y(found.y) < SIZE.top - 4 ? "hidden" : "visible",
    );
    if (found) {
      spot.setAttribute("cx", chart.to.x(found.x));
      spot.setAttribute("cy", chart.to.y(found.y));
    }
  });
  const place = at === null
    ? ""
    : view.axis === "hours"
    ? `at ${precise(at)} h`
    : `at ${view.axis === "step" ? "step " : ""}${whole(at)}${view.axis === "tokens" ? " tokens" : ""}`;
  chart.where.textContent = place || chart.unit;
}

function hover(at) {
  view.hover = at;
  CHARTS.forEach(point);
}

function listen(chart) {
  const { svg } = chart;
  let from = null;
  const at = (event) => {
    const [low, high] = view.zoom || fullRange();
    return Math.min(Math.max(chart.to.back(event.clientX - svg.getBoundingClientRect().left), low), high);
  };
  svg.addEventListener("pointermove", (event) => {
    hover(at(event));
    if (from === null) return;
    const edges = [chart.to.x(from), chart.to.x(at(event))].sort((a, b) => a - b);
    chart.zone.setAttribute("x", edges[0]);
    chart.zone.setAttribute("width", edges[1] - edges[0]);
  });
  svg.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch") return;
    from = at(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const range = [from, at(event)].sort((a, b) => a - b), full = fullRange();
    from = null;
    if (range[1] - range[0] > (full[1] - full[0]) / 1000 && chart.to.x(range[1]) - chart.to.x(range[0]) > 6) {
      zoom(range);
    } else chart.zone.setAttribute("width", 0);
  });
  svg.addEventListener("pointerleave", () => hover(null));
  svg.addEventListener("dblclick", () => zoom(null));
}

function zoom(range) {
  view.zoom = range;
  byId("reset").hidden = !range;
  CHARTS.forEach(render);
}

function buildCharts() {
  CHARTS.forEach((chart, i) => {
    const card = put(byId("charts"), "div", { className: "card chart" });
    const top = put(card, "div", { className: "top" });
    put(top, "h3", {}, chart.title);
    chart.where = put(top, "span", { className: "soft" }, chart.unit);
    const legend = put(card, "div", { className: "legend" });
    chart.values = chart.series.map((series) => {
      const entry = put(legend, "span", {});
      put(entry, "i", {}).style.background = series.colour;
      entry.append(series.name);
      return put(entry, "b", {});
    });
    chart.nothing = put(card, "div", { className: "soft empty", hidden: true }, "No values yet.");
    chart.id = `clip${i}`;
    chart.svg = draw(card, "svg", { role: "img", "aria-label": `${chart.title} over the run` });
    listen(chart);
  });
  for (const [key, name] of Object.entries(AXES)) {
    const choose = () => {
      view.axis = key;
      for (const other of byId("axis").children) other.setAttribute("aria-pressed", String(other === one));
      hover(null);
      zoom(null);
    };
    const one = button(name, key === view.axis, choose);
    byId("axis").append(one);
  }
  byId("reset").addEventListener("click", () => zoom(null));
  new ResizeObserver(() => CHARTS.forEach(render)).observe(byId("charts"));
}
