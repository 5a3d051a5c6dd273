"use strict";
// Compares several runs: their curves in the same charts, and the settings that differ.

const { runs, differences } = pageData();

const perRun = (values, dots = false) =>
  runs.flatMap((run, i) => {
    const line = values(run);
    return line ? [{ name: run.name, dots, colour: colour(i), ...line }] : [];
  });

const trained = (field) => (run) => ({
  at: run.curves,
  ...run.curves[field],
  latest: run.losses[field] ?? undefined,
});

function judged(values) {
  return (run) => {
    const set = run.validations[0], mean = set && values(set);
    return mean && { at: set, mean, low: mean, high: mean };
  };
}

const CHARTS = [
  {
    title: "Validation loss",
    unit: "nats per target token; comparable between runs with one vocabulary",
    cut: true,
    series: perRun(judged((set) => set.nll), true),
  },
  {
    title: "Perplexity per word",
    unit: "log scale; comparable between any vocabularies",
    log: true,
    cut: true,
    series: perRun(judged((set) => set.word_perplexity), true),
  },
  {
    title: "BLEU",
    unit: "sacrebleu, raw references",
    best: true,
    series: perRun(judged((set) => set.scores.bleu), true),
  },
  {
    title: "Training loss (without label smoothing)",
    unit: "nats per target token",
    cut: true,
    series: perRun(trained("nll")),
  },
  { title: "Learning rate", unit: "", zero: true, series: perRun(trained("learning_rate")) },
  {
    title: "Throughput",
    unit: "target tokens per second, without filler",
    zero: true,
    series: perRun(trained("tokens_per_second")),
  },
];

const least = (values) => (known(values).length ? Math.min(...known(values)) : null);
const most = (values) => (known(values).length ? Math.max(...known(values)) : null);

function grid(parent, title, head, rows) {
  put(parent, "h2", {}, title);
  const card = put(parent, "div", { className: "card" });
  table(put(card, "div", { className: "scroll" }), ["", ...head], rows.map((cells) => ({ cells })), "runs");
}

function buildScores() {
  const rows = runs.map((run) => {
    const set = run.validations[0];
    return [
      run.name,
      whole(run.step),
      short(run.tokens),
      time(3600 * run.hours),
      set ? set.set + (set.scored_on && `, scores on ${set.scored_on}`) : "–",
      precise(set && least(set.nll)),
      precise(set && least(set.word_perplexity)),
      score(set && set.scores.bleu && most(set.scores.bleu)),
      score(set && set.scores.chrf && most(set.scores.chrf)),
    ];
  });
  const best = ["Lowest loss", "Perplexity per word", "Best BLEU", "Best chrF"];
  const head = ["Step", "Target tokens", "Time", "Set", ...best];
  grid(byId("scores"), "Summary", head, rows);
}

function buildAbout() {
  const names = runs.map((run) => run.name);
  if (differences.length) {
    grid(byId("about"), "Settings that differ", names, differences);
  }
  const facts = [...new Set(runs.flatMap((run) => Object.keys(run.environment)))];
  const shown = (run, fact) => String(run.environment[fact] ?? "–");
  const rows = facts.map((fact) => [fact, ...runs.map((run) => shown(run, fact))]);
  grid(byId("about"), "Environment", names, rows);
}

put(byId("head"), "h1", {}, `Comparison of ${runs.length} runs`);
byId("head").append(themeButton());
buildCharts();
buildScores();
buildAbout();
byId("foot").textContent = "Made by nmt report from the log.jsonl of each run.";
