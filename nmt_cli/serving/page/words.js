"use strict";
// Words of a text and of its translation in the colours of what they come from.

const COLOURS = 8;

/** `text` cut at `words`, which occur in it in order: pieces, each with the number of its word or -1. */
function located(text, words) {
  const found = [];
  let place = 0;
  words.forEach((word, number) => {
    const at = text.indexOf(word, place);
    if (at < 0) return;
    if (at > place) found.push([text.slice(place, at), -1]);
    found.push([word, number]);
    place = at + word.length;
  });
  if (place < text.length) found.push([text.slice(place), -1]);
  return found;
}

/** Nodes for a sentence; words for which `colour` has a number are coloured, and kept in `kept`. */
function coloured(text, words, colour, kept) {
  return located(text, words).map(([part, number]) => {
    if (number < 0 || colour(number) < 0) return document.createTextNode(part);
    const made = element("span", { className: "word" }, part);
    made.style.setProperty("--hue", (colour(number) % COLOURS) * (360 / COLOURS));
    kept[number] = made;
    return made;
  });
}

/** Colours a sentence on both sides; pointing at a word shows its partners. */
function colourSentence(sentence, { source, target, links }) {
  const [ours, theirs] = [{}, {}];
  const partners = (side, number) =>
    links.filter((link) => link[side] === number).map((link) => link[1 - side]);
  const first = (number) => partners(1, number)[0] ?? -1;
  const used = (number) => (partners(0, number).length ? number : -1);
  sentence.mirrored.replaceChildren(...coloured(sentence.source, source, used, theirs));
  sentence.shown.replaceChildren(...coloured(sentence.translatedText, target, first, ours));
  for (const [number, made] of Object.entries(ours)) {
    const together = [made, ...partners(1, Number(number)).map((other) => theirs[other])].filter(Boolean);
    const mark = (on) => together.forEach((one) => one.classList.toggle("on", on));
    made.onpointerenter = () => mark(true);
    made.onpointerleave = () => mark(false);
  }
}
