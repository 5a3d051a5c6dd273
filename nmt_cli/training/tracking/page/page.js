"use strict";
// ---- Head and tiles

function bestOf(set, metric) {
  const values = set.scores[metric] || [], top = Math.max(...known(values));
  return Number.isFinite(top) ? { value: top, step: set.step[values.indexOf(top)] } : null;
}

const STATES = { training: "training", stopped: "stopped, can be resumed", done: "complete" };

function buildHead() {
  const head = byId("head"), [source, target] = run.languages;
  document.title = `${run.name} · nmt train`;
  put(head, "h1", {}, run.name);
  put(head, "span", { className: "pill" }, `${source} → ${target}`);
  const state = STATES[run.state];
  put(head, "span", { className: `pill state ${run.state}` }, state);
  put(head, "span", { className: "soft written" }, `written ${new Date(run.written).toLocaleString()}`);
  head.append(themeButton());
}

function tile(label, value, below) {
  const box = put(byId("tiles"), "div", { className: "card tile" });
  put(box, "div", { className: "label" }, label);
  put(box, "div", { className: "value" }, value);
  if (typeof below === "string") put(box, "div", { className: "below" }, below);
  else if (below) box.append(...below);
}

function buildTiles() {
  const first = run.validations[0], share = Math.min(run.step / run.max_steps, 1);
  const bar = element("div", { className: "progress" });
  put(bar, "i", {}).style.width = `${100 * share}%`;
  tile("Step", whole(run.step), [
    bar,
    element(
      "div",
      { className: "below" },
      `of ${whole(run.max_steps)}, epoch ${run.epoch}${run.epoch_of && ` of ${run.epoch_of}`}${
        run.skipped ? `, ${whole(run.skipped)} skipped` : ""
      }`,
    ),
  ]);
  const left = run.state === "training" ? `${time(run.seconds_left)} to go` : STATES[run.state];
  tile("Time", time(run.seconds), left);
  const { loss, nll } = run.losses;
  tile(
    "Training loss (with label smoothing)",
    precise(loss),
    nll === null ? "" : `perplexity ${precise(Math.exp(nll))}`,
  );
  if (first) {
    const best = bestOf(first, "bleu"), least = Math.min(...known(first.perplexity));
    tile(`Perplexity, ${first.set}`, precise(last(first.perplexity)), `lowest ${precise(least)}`);
    if (best) {
      tile(
        `BLEU, ${first.set}${first.scored_on && `, ${first.scored_on}`}`,
        score(last(first.scores.bleu)),
        `best ${score(best.value)} at step ${whole(best.step)}`,
      );
    }
  }
  const speed = last(known(run.curves.tokens_per_second.mean));
  tile("Speed", speed === null ? "–" : `${whole(speed)}/s`, `${short(run.tokens)} target tokens`);
}

// ---- Sample translations

const wordsOf = (text) => (/\s/.test(text.trim()) ? text.trim().split(/\s+/) : [...text.trim()]);

function common(words, reference) {
  // Which of `words` are in the longest sequence they share with the reference.
  const lengths = Array.from({ length: words.length + 1 }, () => new Uint16Array(reference.length + 1));
  for (let i = words.length - 1; i >= 0; i--) {
    for (let j = reference.length - 1; j >= 0; j--) {
      lengths[i][j] = words[i] === reference[j]
        ? lengths[i + 1][j + 1] + 1
        : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const shared = new Set();
  for (let i = 0, j = 0; i < words.length && j < reference.length;) {
    if (words[i] === reference[j]) shared.add((j++, i++));
    else if (lengths[i + 1][j] >= lengths[i][j + 1]) i++;
    else j++;
  }
  return shared;
}

function compare(node, text, reference) {
  const words = wordsOf(text).slice(0, 300), blank = /\s/.test(text.trim()) ? " " : "";
  const shared = common(words, wordsOf(reference).slice(0, 300));
  node.replaceChildren();
  if (!words.length || !words[0]) return void put(node, "span", { className: "soft" }, "(nothing)");
  for (let i = 0; i < words.length;) {
    let end = i;
    while (end < words.length && shared.has(end) === shared.has(i)) end++;
    const run = words.slice(i, end).join(blank);
    if (i) node.append(blank);
    if (shared.has(i)) node.append(run);
    else put(node, "span", { className: "other" }, run);
    i = end;
  }
}

function way(card, sentence, steps) {
  // A translation that stays the same for some validations is shown once.
  const changes = steps.map((step, i) => [step, sentence.translations[i]]).filter(([, text], i) =>
    !i || text !== sentence.translations[i - 1]
  );
  if (changes.length < 2) return;
  const details = put(card, "details", {});
  put(details, "summary", {}, `Earlier translations (${changes.length - 1})`);
  const list = put(details, "div", { className: "way" });
  for (const [step, text] of changes.reverse()) {
    put(list, "span", {}, `step ${whole(step)}`);
    compare(put(list, "span", { className: "said", dir: "auto" }), text, sentence.reference);
  }
}

function buildSamples(set) {
  const box = byId("samples");
  if (!set.step.length || !set.sentences.length) return;
  const bar = put(box, "div", { className: "bar" });
  put(bar, "h2", {}, `Translations of ${set.set}`);
  const slider = put(bar, "label", { className: "slider" });
  const input = put(slider, "input", {
    type: "range",
    min: 0,
    max: set.step.length - 1,
    value: set.step.length - 1,
    "aria-label": "Validation",
  });
  input.value = set.step.length - 1;
  const shown = put(slider, "output", {});
  put(
    bar,
    "span",
    { className: "hint" },
    "Words that are not in the reference, or in another order, are ",
    element("span", { className: "other" }, "marked"),
    ".",
  );
  const translations = set.sentences.map((sentence) => {
    const card = put(box, "article", { className: "card sentence" });
    const row = (key, className) => {
      put(card, "span", { className: "key" }, key);
      return put(card, "span", { className, dir: "auto" });
    };
    row(`Source, line ${whole(sentence.line)}`, "said").textContent = sentence.source;
    row("Reference", "said").textContent = sentence.reference;
    const node = row("Translation", "said now");
    way(card, sentence, set.step);
    return { node, sentence };
  });
  const show = () => {
    const i = Number(input.value);
    shown.textContent = `step ${whole(set.step[i])} · BLEU ${score(set.bleu[i])}`;
    for (const { node, sentence } of translations) {
      compare(node, sentence.translations[i], sentence.reference);
    }
  };
  input.addEventListener("input", show);
  show();
}

// ---- Tables

const scientific = (value) => {
  const [digits, power] = value.toExponential(1).split("e");
  return value
    ? `${digits} × 10${[...String(Number(power))].map((d) => (d === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[d])).join("")}`
    : "0";
};

function buildScores() {
  for (const set of run.validations) {
    const metrics = Object.keys(set.scores), top = bestOf(set, "bleu");
    put(byId("scores"), "h2", {}, `Validations on ${set.set}`);
    const card = put(byId("scores"), "div", { className: "card" });
    const rows = set.step.map((step, i) => ({
      best: top && step === top.step,
      cells: [
        whole(step),
        time(3600 * set.hours[i]),
        precise(set.nll[i]),
        precise(set.perplexity[i]),
        precise(set.word_perplexity[i]),
        ...metrics.map((metric) => score(set.scores[metric][i])),
      ],
    }));
    const names = metrics.map((metric) => NAMES[metric] || metric);
    const head = ["Step", "Time", "Loss", "Perplexity", "Perplexity per word", ...names];
    table(put(card, "div", { className: "scroll" }), head, rows.reverse());
    const signatures = metrics.map((metric) => `${NAMES[metric] || metric}: ${set.signatures[metric]}`).join(
      "; ",
    );
    const decoded = set.decoded === "ema" ? "Validated with the moving average of the weights (EMA). " : "";
    const on = set.scored_on && `Scores on ${set.scored_on}. `;
    put(card, "p", { className: "soft under said" }, decoded + on + signatures).style.overflowWrap =
      "anywhere";
    // Good scores of long lines hide bad ones of short lines.
    if (set.by_length.length > 1) buildLengths(set, metrics, names);
  }
}

function buildLengths(set, metrics, names) {
  put(byId("scores"), "h2", {}, `By length on ${set.set}, step ${whole(last(set.step))}`);
  const card = put(byId("scores"), "div", { className: "card" });
  const rows = set.by_length.map(({ least, most, lines, ...scores }) => ({
    cells: [
      most === null ? `${least} or more` : `${least} to ${most}`,
      whole(lines),
      ...metrics.map((metric) => score(scores[metric])),
    ],
  }));
  table(put(card, "div", { className: "scroll" }), ["Words of the reference", "Sentences", ...names], rows);
}

function buildAbout() {
  const columns = put(byId("about"), "div", { className: "columns" });
  const left = put(columns, "div", {}), right = put(columns, "div", {});
  put(left, "h2", {}, "This run");
  table(put(left, "div", { className: "card" }), [], run.facts.map((cells) => ({ cells })), "facts");
  put(right, "h2", {}, "Cost");
  const card = put(right, "div", { className: "card" }), cost = run.cost;
  const hours = String(Number(cost.device_hours.toPrecision(3)));
  const rows = [{ cells: ["this run", scientific(cost.model_flops), hours, scientific(cost.flops)] }];
  // Beside the paper's hours, those of a short trial say nothing.
  for (const [name, paper] of Object.entries(cost.device_hours < 0.1 ? {} : cost.paper)) {
    rows.push({
      cells: [`the paper's ${name} model`, "–", `${paper.hours} × ${paper.devices}`, scientific(paper.flops)],
    });
  }
  const head = ["", "Model FLOPs", "Hours × devices", "FLOPs as in Table 2"];
  table(put(card, "div", { className: "scroll" }), head, rows);
  put(
    card,
    "p",
    { className: "soft under" },
    "Model FLOPs are those of the matrix products, forward and backward. The paper's Table 2 estimates the cost " +
      `as hours × devices × ${scientific(cost.device_flops)} operations per second, for any device.`,
  );
  const settings = put(byId("about"), "details", { className: "card" });
  put(settings, "summary", {}, "All settings (config.toml)");
  put(settings, "pre", {}, run.settings);
}

// ---- During training, the page reloads itself unless the reader is using it.

function reloadNowAndThen() {
  for (const kind of ["pointerdown", "keydown", "input"]) {
    addEventListener(kind, () => (view.touched = Date.now()));
  }
  setInterval(() => {
    const idle = Date.now() - view.touched > 5 * 1000 * RELOAD_SECONDS;
    if (idle && !view.zoom) location.reload();
  }, 1000 * RELOAD_SECONDS);
}

buildHead();
buildTiles();
buildCharts();
run.samples.forEach(buildSamples);
buildScores();
buildAbout();
byId("foot").textContent =
  "Made by nmt train from log.jsonl, which has every step. In long curves a point is the mean of a few steps, " +
  "and the band is their minimum and maximum. The training loss is the mean of the last 50 steps.";
if (run.state === "training") reloadNowAndThen();
