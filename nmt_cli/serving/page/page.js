"use strict";
// The page: it translates the typed text, sentence by sentence. Addresses are relative, so that a proxy may add a prefix.

const { languages, targets, maxCharacters, needsKey, files } = pageData();
const ALTERNATIVES = 3;
const TYPING_PAUSE = 350; // milliseconds without a key press before the text is translated
const HUES = 8;
const state = { translation: "", source: "", request: null, timer: 0, alternatives: false };

const named = (code) => element("option", { value: code }, languages[code] ?? code);

/** Return the source language: the chosen one, or the detected one. */
const source = () => (byId("from").value === "auto" ? state.source : byId("from").value);

/** List the targets of the chosen source. Choose `preferred` if it is one of them. */
function offerTargets(preferred) {
  const from = byId("from").value;
  const all = new Set(Object.values(targets).flat());
  const offered = from === "auto" ? [...all] : targets[from];
  byId("to").replaceChildren(...offered.map(named));
  if (offered.includes(preferred)) byId("to").value = preferred;
}

/** Return the language to translate into after a swap, or null if no model translates that way. */
function swapTarget() {
  const from = source() || Object.keys(targets).find((one) => targets[one].includes(byId("to").value));
  return (targets[byId("to").value] ?? []).includes(from) ? from : null;
}

function swap() {
  const from = swapTarget();
  if (!from) return;
  byId("from").value = byId("to").value;
  offerTargets(from);
  if (state.translation) byId("text").value = state.translation;
  typed(0);
}

/** Show a message below the translation. */
function showStatus(text, wrong = false) {
  byId("status").textContent = text;
  byId("status").classList.toggle("wrong", wrong);
}

/** Fit the height of the field to its text, and update the count of characters. */
function fit() {
  const field = byId("text");
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
  byId("count").textContent =
    `${field.value.length.toLocaleString()} of ${maxCharacters.toLocaleString()} characters`;
  byId("swap").disabled = !swapTarget();
}

/** Cancel the running request, and translate the text after a pause. Until then, the old translation is dimmed. */
function typed(after = TYPING_PAUSE) {
  clearTimeout(state.timer);
  state.request?.abort();
  byId("mirror").replaceChildren();
  byId("translation").classList.add("old");
  byId("alternatives").hidden = true;
  for (const id of ["copy", "look"]) byId(id).disabled = true;
  fit();
  state.timer = setTimeout(translate, after);
}

/** Show the button that requests alternatives. */
function showAlternativesButton() {
  const toggle = () => {
    state.alternatives = !state.alternatives;
    showAlternativesButton();
    typed(0);
  };
  byId("more").replaceChildren(button("Alternatives", state.alternatives, toggle));
}

/** Return the fields that all requests have. */
function commonFields(source) {
  const key = needsKey ? { api_key: byId("key").value } : {};
  return { source, target: byId("to").value, ...key };
}

/** Return the fields of a request for a translation from the language `source`. */
function fields(source) {
  const alternatives = state.alternatives ? ALTERNATIVES : 0;
  return { q: byId("text").value, alternatives, ...commonFields(source) };
}

/** Clear the translation. */
function clear() {
  byId("translation").classList.remove("old");
  byId("translation").replaceChildren();
  end({ translatedText: "" });
}

/** Append `text` to `parent`. Return the element of each of its `words`. */
function append(parent, text, words) {
  let end = 0;
  const elements = words.map((word) => {
    const start = text.indexOf(word, end);
    const span = element("span", {}, word);
    parent.append(text.slice(end, start), span);
    end = start + word.length;
    return span;
  });
  parent.append(text.slice(end));
  return elements;
}

/** Show a translated sentence after the others. The first one replaces the translation before. Linked words
 * have the same colour. Pointing at a translated word highlights it and its source words. */
function add({ sentence, source, translatedText, blanks, alignment }) {
  if (sentence === 0) {
    clear();
    showStatus("…");
  }
  const shown = element("span", { lang: byId("to").value });
  byId("translation").append(shown, blanks);
  const sources = append(byId("mirror"), source, alignment.source);
  const targets = append(shown, translatedText, alignment.target);
  byId("mirror").append(blanks);
  for (const [from, to] of alignment.links) {
    const pair = [sources[from], targets[to]];
    for (const word of pair.filter((one) => !one.className)) {
      word.className = "word";
      word.style.setProperty("--hue", (from % HUES) * (360 / HUES));
    }
    const highlight = (on) => pair.forEach((word) => word.classList.toggle("on", on));
    targets[to].addEventListener("pointerenter", () => highlight(true));
    targets[to].addEventListener("pointerleave", () => highlight(false));
  }
}

/** Complete the page after all sentences of a translation. */
function end({ translatedText, detectedLanguage: guess, alternatives = [] }) {
  state.translation = translatedText;
  if (guess) state.source = guess.language;
  showStatus(guess ? `Detected ${languages[guess.language]} (${guess.confidence} %)` : "");
  byId("alternatives").hidden = !alternatives.length;
  byId("list").replaceChildren(
    ...alternatives.map((text) => element("li", { lang: byId("to").value }, text)),
  );
  for (const id of ["copy", "look"]) byId(id).disabled = !translatedText;
  byId("swap").disabled = !swapTarget();
}

/** Yield each event of a response: a line "data: " with JSON, then an empty line. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    const complete = (buffer + read.value).split("\n\n");
    buffer = complete.pop();
    for (const event of complete) yield JSON.parse(event.slice("data: ".length));
  }
}

/** Return a response with status 200. Otherwise, throw the error that the server reports. */
async function checked(response) {
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({}));
  throw new Error(error ?? `The server responded with status ${response.status}.`);
}

/** Translate the text. `typed` aborts the request, which drops its sentences on the server. */
async function translate() {
  if (!byId("text").value.trim()) return clear();
  const { signal } = (state.request = new AbortController());
  const headers = { "Content-Type": "application/json" };
  const body = JSON.stringify({ ...fields(byId("from").value), stream: true, alignment: true });
  showStatus("…");
  try {
    const response = await checked(await fetch("translate", { method: "POST", headers, body, signal }));
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error);
      if ("sentence" in event) add(event);
      else end(event);
    }
  } catch (error) {
    if (error.name !== "AbortError") showStatus(error.message, true);
  }
}

/** Translate a file. Return the name under which the browser saves the translation, such as page.de.html. */
async function translateFile(file) {
  const body = new FormData();
  const sent = { file, ...commonFields(byId("from").value) };
  for (const [name, value] of Object.entries(sent)) body.append(name, value);
  const response = await checked(await fetch("translate_file", { method: "POST", body }));
  // The address names the server as a proxy reports it. From here, the last part is enough.
  const stored = (await response.json()).translatedFileUrl.split("/").pop();
  const translated = await checked(await fetch(`download_file/${stored}`));
  const download = file.name.replace(/(\.[^.]*)?$/, `.${sent.target}$1`);
  element("a", { href: URL.createObjectURL(await translated.blob()), download }).click();
  return download;
}

/** Translate the chosen file, and report progress below the translation. */
async function fileChosen() {
  const [file] = byId("files").files;
  byId("files").value = ""; // so that the same file can be chosen again
  if (!file) return;
  byId("file").disabled = true;
  showStatus(`Translating ${file.name} …`);
  try {
    showStatus(`Saved ${await translateFile(file)}.`);
  } catch (error) {
    showStatus(error.message, true);
  }
  byId("file").disabled = false;
}

/** Copy the translation. Browsers have `navigator.clipboard` only with TLS and on localhost. */
async function copy() {
  let copied = true;
  try {
    await navigator.clipboard.writeText(state.translation);
  } catch {
    const field = element("textarea", { value: state.translation, className: "unseen" });
    document.body.append(field);
    field.select();
    copied = document.execCommand("copy");
    field.remove();
    byId("copy").focus();
  }
  showStatus(copied ? "Copied." : "The browser does not allow copying.", !copied);
}

/** Open the attention page. A form keeps the text out of the address, which browsers and proxies store. */
function openAttention() {
  const hidden = ([name, value]) => element("input", { type: "hidden", name, value });
  byId("attention").replaceChildren(...Object.entries(fields(source())).map(hidden));
  byId("attention").submit();
}

function pressed(event) {
  if (event.ctrlKey && event.key === "Enter") typed(0);
  else if (event.altKey && event.key.toLowerCase() === "s") swap();
  else return;
  event.preventDefault();
}

/** Apply the address, for example #source=en&target=de&q=A%20dog. Browsers do not send the part after #. */
function applyAddress() {
  const { source, target, q } = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  if (source in targets || source === "auto") byId("from").value = source;
  offerTargets(target);
  if (q) {
    byId("text").value = q;
    typed(0);
  }
}

function main() {
  const auto = element("option", { value: "auto" }, "Detect language");
  byId("from").append(...Object.keys(targets).map(named), auto);
  byId("key").hidden = !needsKey;
  showAlternativesButton();
  byId("from").onchange = () => {
    offerTargets(byId("to").value);
    typed(0);
  };
  byId("to").onchange = () => typed(0);
  byId("swap").onclick = swap;
  byId("text").oninput = () => typed();
  byId("clear").onclick = () => {
    byId("text").value = "";
    typed(0);
    byId("text").focus();
  };
  byId("copy").onclick = copy;
  byId("files").accept = files.join();
  byId("files").onchange = fileChosen;
  byId("file").title = `Translate a file (${files.join(", ")})`;
  byId("file").onclick = () => byId("files").click();
  byId("look").onclick = openAttention;
  document.querySelector("header").append(themeButton());
  addEventListener("keydown", pressed);
  addEventListener("resize", fit);
  applyAddress();
  fit();
  byId("text").focus();
}

main();
