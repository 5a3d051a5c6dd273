"use strict";
// The page: it translates the typed text, one sentence after the other.

const { languages, targets, maxCharacters, needsKey } = pageData();
const ALTERNATIVES = 3;
const TYPING_PAUSE = 350; // milliseconds without a key press before the text is translated
const state = { sentences: [], translation: "", source: "", request: null, timer: 0, alternatives: false };

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

/** Cancel the running request, and translate the text after a pause. */
function typed(after = TYPING_PAUSE) {
  clearTimeout(state.timer);
  state.request?.abort();
  byId("mirror").replaceChildren();
  byId("translation").classList.add("old");
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

/** Return the fields of a translation request. */
function fields() {
  const alternatives = state.alternatives ? ALTERNATIVES : 0;
  const key = needsKey ? { api_key: byId("key").value } : {};
  const [source, target] = [byId("from").value, byId("to").value];
  return { q: byId("text").value, source, target, alternatives, stream: true, ...key };
}

/** Clear the translation. */
function begin() {
  Object.assign(state, { sentences: [], translation: "" });
  byId("translation").replaceChildren();
  byId("translation").classList.remove("old");
  byId("mirror").replaceChildren();
  byId("alternatives").hidden = true;
  for (const id of ["copy", "look"]) byId(id).disabled = true;
}

/** Show a translated sentence. */
function add(sentence) {
  sentence.shown = element("span", { lang: byId("to").value }, sentence.translatedText);
  sentence.mirrored = element("span", {}, sentence.source);
  byId("translation").append(sentence.shown, sentence.blanks);
  byId("mirror").append(sentence.mirrored, sentence.blanks);
  state.sentences.push(sentence);
}

/** Show the complete translation. */
function end(answer) {
  state.translation = answer.translatedText;
  const guess = answer.detectedLanguage;
  if (guess) state.source = guess.language;
  showStatus(guess ? `Detected ${languages[guess.language]} (${guess.confidence} %)` : "");
  const alternatives = answer.alternatives ?? [];
  byId("alternatives").hidden = !alternatives.length;
  byId("list").replaceChildren(
    ...alternatives.map((text) => element("li", { lang: byId("to").value }, text)),
  );
  byId("copy").disabled = !state.translation;
  byId("swap").disabled = !swapTarget();
}

async function translate() {
  if (!byId("text").value.trim()) {
    begin();
    return showStatus("");
  }
  const request = (state.request = new AbortController());
  showStatus("…");
  try {
    const response = await post("translate", fields(), request.signal);
    let begun = false;
    for await (const event of events(response)) {
      if (request.signal.aborted) return;
      if (event.error) throw new Error(event.error);
      if (!begun) begin();
      begun = true;
      if ("sentence" in event) add(event);
      else end(event);
    }
    await colour(request);
  } catch (error) {
    if (error.name !== "AbortError") showStatus(error.message, true);
  }
}

/** Return the sentences with words, and the fields of a request for their alignment or attention. */
function pairs() {
  const worded = state.sentences.filter(({ source, translatedText }) =>
    source.trim() && translatedText.trim()
  );
  const key = needsKey ? { api_key: byId("key").value } : {};
  const sentences = worded.map((one) => [one.source, one.translatedText]);
  return { worded, fields: { source: source(), target: byId("to").value, pairs: sentences, ...key } };
}

/** Colour aligned words. */
async function colour(request) {
  const { worded, fields } = pairs();
  if (!worded.length) return;
  const response = await post("align", fields, request.signal);
  if (!response.ok) return; // translated through a pivot language, so there is no alignment
  const aligned = await response.json();
  if (request.signal.aborted) return;
  worded.forEach((sentence, number) => colourSentence(sentence, aligned[number]));
  byId("look").disabled = false;
}

/** Open the attention page. A form keeps the text out of the address, which browsers and proxies store. */
function openAttention() {
  const values = { ...pairs().fields };
  values.pairs = JSON.stringify(values.pairs.slice(0, 20));
  const hidden = ([name, value]) => element("input", { type: "hidden", name, value });
  byId("attention").replaceChildren(...Object.entries(values).map(hidden));
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
  byId("copy").onclick = () =>
    navigator.clipboard.writeText(state.translation).then(() => showStatus("Copied."));
  byId("look").onclick = openAttention;
  document.querySelector("header").append(themeButton());
  addEventListener("keydown", pressed);
  addEventListener("resize", fit);
  applyAddress();
  fit();
  byId("text").focus();
}

main();
