"use strict";
// Pieces of text, shown so that nothing in them is hidden.

const ODD = "[\\p{Cc}\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]"; // would change how others are shown

/** `text` with all that can't be seen, or could reorder its surroundings, spelt out. */
function spelt(text) {
  const name = (c) => `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
  return text.replace(new RegExp(ODD, "gu"), name);
}

function token({ text, language, isMark }, side = "", index = -1) {
  const made = element("span", {
    className: isMark ? "token mark" : "token",
    lang: language,
    title: spelt(text),
  });
  for (const part of (/^ *$/.test(text) ? "␣" : text).split(new RegExp(`(▁|${ODD})`, "u"))) {
    const kind = part === "▁" ? "blank" : spelt(part) !== part ? "odd" : "";
    made.append(kind ? element("span", { className: kind }, spelt(part)) : part);
  }
  if (side) Object.assign(made.dataset, { side, index });
  return made;
}

function column(className, side, pieces) {
  const made = element("div", { className });
  pieces.forEach((piece, i) => {
    const one = token(piece, side, i);
    one.style.display = "block";
    made.append(one);
  });
  return made;
}
