"use strict";
// ---- What the report says

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
      ["Left out", whole(read - kept), percent(read - kept, read)],
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

/** Counts of scores in bars of equal width, from a sample of them. */
function scoresOf(corpora) {
  const scores = corpora.flatMap((corpus) => corpus.shapes.scores);
  const least = Math.min(...scores), width = (Math.max(...scores) - least) / BARS || 1;
  const limit = report.settings.min_score || -Infinity;
  const kept = Array(BARS).fill(0), gone = Array(BARS).fill(0);
  for (const score of scores) {
    const place = Math.min(BARS - 1, Math.floor((score - least) / width));
    (score < limit ? gone : kept)[place] += 1;
  }
  const digits = Math.max(0, Math.min(6, 2 - Math.floor(Math.log10(width))));
  const now = Math.max(0, Math.min(BARS - 1, Math.round((limit - least) / width)));
  return { kept, gone, now, label: (place) => (least + place * width).toFixed(digits) };
}

function shapesOf(corpora) {
  const of = (what, which) => summed(corpora.map((corpus) => corpus.shapes[what][which]));
  const { max_words: words, max_ratio: ratio } = report.settings, step = report.ratio_step;
  const upTo = (at, place) => at <= place;
  const end = (place, most, told) => place >= most ? `${told(most)} or more` : told(place);
  const lengths = {
    setting: "filter.max_words",
    now: words || undefined,
    edge: 1,
    keeps: upTo,
    label: (place) => end(place, report.most_words, String),
  };
  const ratios = {
    setting: "filter.max_ratio",
    now: ratio ? Math.round((ratio - 1) * step) : undefined,
    edge: 1,
    keeps: upTo,
    label: (place) => end(place, (report.most_ratio - 1) * step, (at) => (1 + at / step).toFixed(2)),
  };
  const cards = [
    histogram("Words of the longer side", of("words", "kept"), of("words", "dropped"), lengths),
    histogram(
      "Words of the longer side for one of the other",
      of("ratios", "kept").slice(step),
      of("ratios", "dropped").slice(step),
      ratios,
    ),
  ];
  if (corpora.some((corpus) => corpus.shapes.scores.length)) {
    const { kept, gone, now, label } = scoresOf(corpora);
    const from = (at, place) => at >= place;
    const shape = { setting: "filter.min_score", now, edge: 0, keeps: from, label };
    cards.push(histogram("Score, of a sample of all pairs", kept, gone, shape));
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

function sample(found, corpus) {
  const [source, target] = report.languages;
  return element(
    "div",
    { className: "card sample" },
    element("div", { className: "soft" }, `${corpus.name}, pair ${whole(found.number)}`),
    element("p", { lang: source, dir: "auto" }, found.source),
    element("p", { lang: target, dir: "auto" }, found.target),
  );
}

function buildSamples(place, corpora, tally) {
  const names = [...new Set(corpora.flatMap((corpus) => Object.keys(corpus[tally])))];
  const known = [...report.reasons, ...names.filter((name) => !report.reasons.includes(name))];
  const shown = known.filter((name) => names.includes(name));
  byId(place).hidden = !shown.length;
  for (const reason of shown) {
    const count = sum(corpora, (corpus) => corpus[tally][reason]?.pairs || 0);
    const found = corpora.flatMap((corpus) =>
      (corpus[tally][reason]?.samples || []).map((one) => sample(one, corpus))
    );
    const title = element("summary", {}, `${reason}: ${whole(count)}`);
    byId(place).append(element("details", { open: true }, title, ...found));
  }
}

buildHead();
buildReasons();
buildHistograms();
buildSamples("samples", training, "dropped");
buildSamples("noted", [...training, ...others], "noted");
