"use strict";
// What pages are built of. Text only ever becomes text nodes, titles and attributes, never markup.

const byId = (id) => document.getElementById(id);

/** What Python wrote into the page. */
const pageData = () => JSON.parse(byId("data").textContent);

/** A new element; what it has no property for becomes an attribute. */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** One of several that are chosen among; `pressed` if it is chosen. */
function button(label, pressed, onclick, properties = {}) {
  return element(
    "button",
    { type: "button", onclick, ...properties, "aria-pressed": String(pressed) },
    label,
  );
}

/** Whether the page is dark now: as the reader chose, or else as the system is. */
function isDark() {
  const asked = document.documentElement.dataset.theme;
  return asked ? asked === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Turns light into dark and back; then calls `changed`, for what is not drawn by the style alone. */
function themeButton(changed = () => {}) {
  const onclick = () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    changed();
  };
  return element("button", { type: "button", className: "theme", title: "Light or dark", onclick }, "◐");
}
