"use strict";
// The page: what is typed is translated, sentence for sentence.

const { languages, targets, maxCharacters, needsKey } = pageData();
const ALTERNATIVES = 3;
const PATIENCE = 350; // milliseconds without a key before a text counts as typed
const state = { sentences: [], whole: "", source: "", asked: null, timer: 0, others: false };

const named = (code) => element("option", { value: code }, languages[code] ?? code);

/** Which source is meant: what was guessed, where that is asked for. */
const source = () => (byId("from").value === "auto" ? state.source : byId("from").value);

/** Offers what the chosen source is translated into. */
function offerTargets(wanted) {
  const from = byId("from").value;
  const every = new Set(Object.values(targets).flat());
  const offered = from === "auto" ? [...every] : targets[from];
  byId("to").replaceChildren(...offered.map(named));
  if (offered.includes(wanted)) byId("to").value = wanted;
}

function canSwap() {
  const from = source() || Object.keys(targets).find((one) => targets[one].includes(byId("to").value));
  return (targets[byId("to").value] ?? []).includes(from) ? from : null;
}

function swap() {
  const from = canSwap();
  if (!from) return;
  byId("from").value = byId("to").value;
  offerTargets(from);
  if (state.whole) byId("text").value = state.whole;
  typed(0);
}

function say(text, wrong = false) {
  byId("status").textContent = text;
  byId("status").classList.toggle("wrong", wrong);
}

/** Makes the field as high as its text, and forgets colours that belong to another text. */
function fit() {
  const field = byId("text");
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
  byId("count").textContent = `${field.value.length.toLocaleString()} of ${maxCharacters.toLocaleString()}`;
  byId("swap").disabled = !canSwap();
}

/** What was typed is translated when nothing more is typed for a while. */
function typed(after = PATIENCE) {
  clearTimeout(state.timer);
  state.asked?.abort();
  byId("mirror").replaceChildren();
  byId("translation").classList.add("old");
  fit();
  state.timer = setTimeout(translate, after);
}

/** The button that asks for other translations too. */
function offerOthers() {
  const turned = () => {
    state.others = !state.others;
    offerOthers();
    typed(0);
  };
  byId("more").replaceChildren(button("Alternatives", state.others, turned));
}

function fields() {
  const several = state.others ? ALTERNATIVES : 0;
  const key = needsKey ? { api_key: byId("key").value } : {};
  const [source, target] = [byId("from").value, byId("to").value];
  return { q: byId("text").value, source, target, alternatives: several, stream: true, ...key };
}

function begin() {
  Object.assign(state, { sentences: [], whole: "" });
  byId("translation").replaceChildren();
  byId("translation").classList.remove("old");
  byId("mirror").replaceChildren();
  byId("alternatives").hidden = true;
  for (const id of ["copy", "look"]) byId(id).disabled = true;
}

/** A sentence is there. */
function add(sentence) {
  sentence.shown = element("span", { lang: byId("to").value }, sentence.translatedText);
  sentence.mirrored = element("span", {}, sentence.source);
  byId("translation").append(sentence.shown, sentence.blanks);
  byId("mirror").append(sentence.mirrored, sentence.blanks);
  state.sentences.push(sentence);
}

/** All is there. */
function end(answer) {
  state.whole = answer.translatedText;
  const guess = answer.detectedLanguage;
  if (guess) state.source = guess.language;
  say(guess ? `${languages[guess.language]}, ${guess.confidence} %` : "");
  const others = answer.alternatives ?? [];
  byId("alternatives").hidden = !others.length;
  byId("list").replaceChildren(...others.map((text) => element("li", { lang: byId("to").value }, text)));
  byId("copy").disabled = !state.whole;
  byId("swap").disabled = !canSwap();
}

async function translate() {
  if (!byId("text").value.trim()) {
    begin();
    return say("");
  }
  const asked = (state.asked = new AbortController());
  say("…");
  try {
    const response = await post("translate", fields(), asked.signal);
    let begun = false;
    for await (const event of events(response)) {
      if (asked.signal.aborted) return;
      if (event.error) throw new Error(event.error);
      if (!begun) begin();
      begun = true;
      if ("sentence" in event) add(event);
      else end(event);
    }
    await colour(asked);
  } catch (error) {
    if (error.name !== "AbortError") say(error.message, true);
  }
}

/** Of sentences with words, what `align` and `attention` are asked about. */
function pairs() {
  const spoken = state.sentences.filter(({ source, translatedText }) =>
    source.trim() && translatedText.trim()
  );
  const key = needsKey ? { api_key: byId("key").value } : {};
  const asked = spoken.map((one) => [one.source, one.translatedText]);
  return { spoken, fields: { source: source(), target: byId("to").value, pairs: asked, ...key } };
}

async function colour(asked) {
  const { spoken, fields } = pairs();
  if (!spoken.length) return;
  const response = await post("align", fields, asked.signal);
  if (!response.ok) return; // through a language between, there is nothing to show
  const found = await response.json();
  if (asked.signal.aborted) return;
  spoken.forEach((sentence, number) => colourSentence(sentence, found[number]));
  byId("look").disabled = false;
}

/** The page of attention, by a form: no text may stand in an address, which others keep. */
function look() {
  const asked = { ...pairs().fields };
  asked.pairs = JSON.stringify(asked.pairs.slice(0, 20));
  const hidden = ([name, value]) => element("input", { type: "hidden", name, value });
  byId("attention").replaceChildren(...Object.entries(asked).map(hidden));
  byId("attention").submit();
}

function pressed(event) {
  if (event.ctrlKey && event.key === "Enter") typed(0);
  else if (event.altKey && event.key.toLowerCase() === "s") swap();
  else return;
  event.preventDefault();
}

/** What the address asks for, as in #source=en&target=de&q=A%20dog; it is behind #, so no server sees it. */
function asked() {
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
  offerOthers();
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
  byId("copy").onclick = () => navigator.clipboard.writeText(state.whole).then(() => say("Copied."));
  byId("look").onclick = look;
  document.querySelector("header").append(themeButton());
  addEventListener("keydown", pressed);
  addEventListener("resize", fit);
  asked();
  fit();
  byId("text").focus();
}

main();
