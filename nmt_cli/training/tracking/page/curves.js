"use strict";
// The curves of one run.

const run = pageData();
const NAMES = { bleu: "BLEU", chrf: "chrF", ter: "TER", comet: "COMET" };
const RELOAD_SECONDS = 60;

function measured(name, field, index, map = (value) => value) {
  const latest = run.losses[field] ?? null;
  const { mean, low, high } = run.curves[field];
  const mapped = (list) => list.map((value) => (value === null ? null : map(value)));
  return {
    name,
    at: run.curves,
    mean: mapped(mean),
    low: mapped(low),
    high: mapped(high),
    latest: latest === null ? undefined : map(latest),
    colour: colour(index),
  };
}

function judged(set, values, index) {
  return {
    name: set.set,
    at: set,
    mean: values,
    low: values,
    high: values,
    colour: colour(index),
    dots: true,
  };
}

const sets = (values, first) => run.validations.map((set, i) => judged(set, values(set), first + i));

const scored = (title, unit, metric) => (
  { title, unit, best: true, series: sets((s) => s.scores[metric] || [], 1) }
);

const CHARTS = [
  {
    title: "Loss",
    unit: "nats per target token",
    cut: true,
    series: [
      measured("training (with label smoothing)", "loss", 0),
      measured("training (without)", "nll", 5),
      ...sets((s) => s.nll, 1),
    ],
  },
  {
    title: "Perplexity",
    unit: "log scale",
    log: true,
    cut: true,
    series: [measured("training", "nll", 5, Math.exp), ...sets((s) => s.perplexity, 1)],
  },
  scored("BLEU", "sacrebleu, raw references", "bleu"),
  ...(run.validations.some((s) => s.scores.comet) ? [scored("COMET", "mean over sentences", "comet")] : []),
  { title: "Learning rate", unit: "", zero: true, series: [measured("learning rate", "learning_rate", 3)] },
  {
    title: "Throughput",
    unit: "target tokens per second, without filler",
    zero: true,
    series: [measured("tokens/s", "tokens_per_second", 2)],
  },
  {
    title: "Gradient norm",
    unit: "log scale, before clipping",
    log: true,
    spikes: true,
    series: [measured("norm", "gradient_norm", 4)],
  },
];
