"use strict";
// Colours for the words of a text and of its translation. Aligned words have the same colour.

const COLOURS = 8;

/** Cut `text` at `words`, which occur in it in order. Return pairs of a part and the index of its word or -1. */
function located(text, words) {
  const parts = [];
  let position = 0;
  words.forEach((word, number) => {
    const start = text.indexOf(word, position);
    if (start < 0) return;
    if (start > position) parts.push([text.slice(position, start), -1]);
    parts.push([word, number]);
    position = start + word.length;
  });
  if (position < text.length) parts.push([text.slice(position), -1]);
  return parts;
}

/** Return the nodes of a sentence. Words with a `colour` number are coloured and stored in `spans`. */
function coloured(text, words, colour, spans) {
  return located(text, words).map(([part, number]) => {
    if (number < 0 || colour(number) < 0) return document.createTextNode(part);
    const span = element("span", { className: "word" }, part);
    span.style.setProperty("--hue", (colour(number) % COLOURS) * (360 / COLOURS));
    spans[number] = span;
    return span;
  });
}

/** Colour a sentence and its translation. Pointing at a translated word highlights its source words. */
function colourSentence(sentence, { source, target, links }) {
  const [targetSpans, sourceSpans] = [{}, {}];
  const partners = (side, number) =>
    links.filter((link) => link[side] === number).map((link) => link[1 - side]);
  const first = (number) => partners(1, number)[0] ?? -1;
  const linked = (number) => (partners(0, number).length ? number : -1);
  sentence.mirrored.replaceChildren(...coloured(sentence.source, source, linked, sourceSpans));
  sentence.shown.replaceChildren(...coloured(sentence.translatedText, target, first, targetSpans));
  for (const [number, span] of Object.entries(targetSpans)) {
    const group = [span, ...partners(1, Number(number)).map((other) => sourceSpans[other])].filter(Boolean);
    const highlight = (on) => group.forEach((one) => one.classList.toggle("on", on));
    span.onpointerenter = () => highlight(true);
    span.onpointerleave = () => highlight(false);
  }
}
