"use strict";
// Building blocks of pages. Text becomes text nodes, titles and attributes, but never markup.

const byId = (id) => document.getElementById(id);

/** Returns the data that Python wrote into the page. */
const pageData = () => JSON.parse(byId("data").textContent);

/** Returns a new element. Names without a DOM property become attributes. */
function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

/** Returns a toggle button. `pressed` is whether it is chosen. */
function button(label, pressed, onclick, properties = {}) {
  return element(
    "button",
    { type: "button", onclick, ...properties, "aria-pressed": String(pressed) },
    label,
  );
}

/** Returns whether the page is dark: as the reader chose, or else as the system is set. */
function isDark() {
  const choice = document.documentElement.dataset.theme;
  return choice ? choice === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Returns a button that switches between light and dark. It calls `changed` to redraw canvases. */
function themeButton(changed = () => {}) {
  const onclick = () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    changed();
  };
  return element("button", { type: "button", className: "theme", title: "Light or dark", onclick }, "◐");
}
