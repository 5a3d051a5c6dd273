"use strict";
// ---- Data

const report = pageData();
const training = report.corpora.filter((corpus) => corpus.role === "train");
const others = report.corpora.filter((corpus) => corpus.role !== "train");
const sum = (corpora, count) => total(corpora.map(count));
const droppedFor = (corpus, reason) => corpus.dropped[reason]?.pairs || 0;
const reasons = report.reasons.filter((reason) => training.some((corpus) => corpus.dropped[reason]));

function buildHead() {
  const [source, target] = report.languages;
  document.title = `Filter report ${source}–${target} · nmt preprocess`;
  byId("head").append(
    element("h1", {}, "Filter report"),
    element("span", { className: "pill" }, `${source} → ${target}`),
    themeButton(),
  );
  const read = sum(training, (corpus) => corpus.read), kept = sum(training, (corpus) => corpus.kept);
  for (
    const [label, value, below] of [
      ["Pairs read", whole(read), `in ${training.length} ${training.length === 1 ? "corpus" : "corpora"}`],
      ["Kept", whole(kept), percent(kept, read)],
      ["Dropped", whole(read - kept), percent(read - kept, read)],
    ]
  ) {
    const parts = [["soft", label], ["value", value], ["soft", below]];
    const cells = parts.map(([className, text]) => element("div", { className }, text));
    byId("tiles").append(element("div", { className: "card tile" }, ...cells));
  }
}

function row(cells, tag = "td") {
  return element("tr", {}, ...cells.map((cell) => element(tag, {}, String(cell))));
}

function buildReasons() {
  const body = training.map((corpus) =>
    row([
      corpus.name,
      whole(corpus.read),
      whole(corpus.kept),
      ...reasons.map((reason) => whole(droppedFor(corpus, reason))),
    ])
  );
  if (training.length > 1) {
    const all = reasons.map((reason) => whole(sum(training, (corpus) => droppedFor(corpus, reason))));
    const sums = [sum(training, (corpus) => corpus.read), sum(training, (corpus) => corpus.kept)];
    body.push(row(["all", ...sums.map(whole), ...all]));
  }
  const head = row(["corpus", "read", "kept", ...reasons], "th");
  byId("reasons").append(element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
}

// ---- Histograms

/** Count a sample of scores in `BARS` bars of equal width. */
function scoresOf(corpora) {
  const scores = corpora.flatMap((corpus) => corpus.shapes.scores);
  const lowest = Math.min(...scores), width = (Math.max(...scores) - lowest) / BARS || 1;
  const limit = report.settings.min_score || -Infinity;
  const kept = Array(BARS).fill(0), dropped = Array(BARS).fill(0);
  for (const score of scores) {
    const bar = Math.min(BARS - 1, Math.floor((score - lowest) / width));
    (score < limit ? dropped : kept)[bar] += 1;
  }
  const digits = Math.max(0, Math.min(6, 2 - Math.floor(Math.log10(width))));
  const now = Math.max(0, Math.min(BARS - 1, Math.round((limit - lowest) / width)));
  return {
    kept,
    dropped,
    now,
    label: (bar) => (lowest + bar * width).toFixed(digits),
  };
}

function shapesOf(corpora) {
  const counts = (axis, group) => summed(corpora.map((corpus) => corpus.shapes[axis][group]));
  const { max_words: words, max_ratio: ratio } = report.settings, step = report.ratio_step;
  const upTo = (index, threshold) => index <= threshold;
  const label = (index, last, text) => index >= last ? `${text(last)} or more` : text(index);
  const lengths = {
    setting: "filter.max_words",
    now: words || undefined,
    edge: 1,
    keeps: upTo,
    label: (index) => label(index, report.most_words, String),
  };
  const ratios = {
    setting: "filter.max_ratio",
    now: ratio ? Math.round((ratio - 1) * step) : undefined,
    edge: 1,
    keeps: upTo,
    label: (index) => label(index, (report.most_ratio - 1) * step, (at) => (1 + at / step).toFixed(2)),
  };
  const cards = [
    histogram("Words of the longer side", counts("words", "kept"), counts("words", "dropped"), lengths),
    histogram(
      "Ratio of words, longer to shorter side",
      counts("ratios", "kept").slice(step),
      counts("ratios", "dropped").slice(step),
      ratios,
    ),
  ];
  if (corpora.some((corpus) => corpus.shapes.scores.length)) {
    const { kept, dropped, now, label } = scoresOf(corpora);
    const from = (index, threshold) => index >= threshold;
    const shape = { setting: "filter.min_score", now, edge: 0, keeps: from, label };
    cards.push(histogram("Score of a sample of all pairs", kept, dropped, shape));
  }
  return cards;
}

function buildHistograms(chosen = "") {
  const names = training.length > 1 ? ["", ...training.keys()] : [];
  byId("corpora").hidden = !names.length;
  byId("corpora").replaceChildren(
    ...names.map((key) =>
      button(key === "" ? "all" : training[key].name, key === chosen, () => buildHistograms(key))
    ),
  );
  byId("histograms").replaceChildren(...shapesOf(chosen === "" ? training : [training[chosen]]));
}

// ---- Samples

function sampleSide(lang, text) {
  const shown = text.trim() ? text : element("span", { className: "soft" }, "(empty)");
  return element("p", { lang, dir: "auto" }, shown);
}

function sampleCard(sample, corpus) {
  const [source, target] = report.languages;
  return element(
    "div",
    { className: "card sample" },
    element("div", { className: "soft" }, `${corpus.name}, pair ${whole(sample.number)}`),
    sampleSide(source, sample.source),
    sampleSide(target, sample.target),
  );
}

function buildSamples(section, corpora, tally) {
  const names = [...new Set(corpora.flatMap((corpus) => Object.keys(corpus[tally])))];
  const ordered = [...report.reasons, ...names.filter((name) => !report.reasons.includes(name))];
  const shown = ordered.filter((name) => names.includes(name));
  byId(section).hidden = !shown.length;
  for (const reason of shown) {
    const count = sum(corpora, (corpus) => corpus[tally][reason]?.pairs || 0);
    const cards = corpora.flatMap((corpus) =>
      (corpus[tally][reason]?.samples || []).map((sample) => sampleCard(sample, corpus))
    );
    const title = element("summary", {}, `${reason}: ${whole(count)}`);
    byId(section).append(element("details", { open: true }, title, ...cards));
  }
}

buildHead();
buildReasons();
buildHistograms();
buildSamples("samples", training, "dropped");
buildSamples("noted", [...training, ...others], "noted");
