"use strict";
// What the page is built of. Text only ever becomes text nodes and titles.

const ODD = "[\\p{Cc}\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]"; // would change how others are shown

const $ = (id) => document.getElementById(id);

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

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

function button(label, pressed, onclick, properties = {}) {
  const made = element("button", { type: "button", onclick, ...properties }, label);
  made.setAttribute("aria-pressed", pressed);
  return made;
}
