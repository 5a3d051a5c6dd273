"use strict";
// Requests to the server. Addresses are relative, so that a proxy may add a prefix.

/** Return the message of an error response as an Error. */
async function refusal(response) {
  const body = await response.json().catch(() => ({}));
  return new Error(body.error ?? `The server responded with status ${response.status}.`);
}

/** Send `fields` as JSON. Aborting `signal` cancels the request and drops its sentences. */
function post(address, fields, signal) {
  const headers = { "Content-Type": "application/json" };
  return fetch(address, { method: "POST", headers, body: JSON.stringify(fields), signal });
}

/** Yield each event of a streamed response. */
async function* events(response) {
  if (!response.ok) throw await refusal(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    const complete = buffer.split("\n\n");
    buffer = complete.pop();
    for (const event of complete) yield JSON.parse(event.replace(/^data: /, ""));
  }
}
