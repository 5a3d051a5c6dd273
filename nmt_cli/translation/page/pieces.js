"use strict";
// Tokens, with their invisible characters made visible.

const ODD = "[\\p{Cc}\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]"; // change how others are shown

/** Return `text` with control characters as code points, for example U+200E. */
function spelt(text) {
  const name = (c) => `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
  return text.replace(new RegExp(ODD, "gu"), name);
}

/** Return the element of a token, with its position as data if it has a side. */
function token({ text, language, isMark }, side = "", index = -1) {
  const span = element("span", {
    className: isMark ? "token mark" : "token",
    lang: language,
    title: spelt(text),
  });
  for (const part of (/^ *$/.test(text) ? "␣" : text).split(new RegExp(`(▁|${ODD})`, "u"))) {
    const kind = part === "▁" ? "blank" : spelt(part) !== part ? "odd" : "";
    span.append(kind ? element("span", { className: kind }, spelt(part)) : part);
  }
  if (side) Object.assign(span.dataset, { side, index });
  return span;
}

/** Return a column of tokens. */
function column(className, side, pieces) {
  const tokens = element("div", { className });
  pieces.forEach((piece, i) => {
    const one = token(piece, side, i);
    one.style.display = "block";
    tokens.append(one);
  });
  return tokens;
}
