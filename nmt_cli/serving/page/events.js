"use strict";
// What the page asks of the server; addresses are relative, so that a proxy may put a prefix before them.

/** An answer of the server that is no translation: what it says, as an error. */
async function refusal(response) {
  const told = await response.json().catch(() => ({}));
  return new Error(told.error ?? `The server answers ${response.status}.`);
}

/** Sends `fields` as JSON; an aborted `signal` takes the sentences back. */
function post(address, fields, signal) {
  const headers = { "Content-Type": "application/json" };
  return fetch(address, { method: "POST", headers, body: JSON.stringify(fields), signal });
}

/** Each event of an answer that comes bit by bit. */
async function* events(response) {
  if (!response.ok) throw await refusal(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const ready = held.split("\n\n");
    held = ready.pop();
    for (const one of ready) yield JSON.parse(one.replace(/^data: /, ""));
  }
}
