// Opens a page in a browser that listens for a driver, and tells what an expression is once it is true.
// deno run driver.js PORT ADDRESS EXPRESSION ...: each is waited for, in turn; a line of JSON for each.
const [port, address, ...expressions] = Deno.args;
const targets = await (await fetch(`http://127.0.0.1:${port}/json`)).json();
const socket = new WebSocket(targets.find((one) => one.type === "page").webSocketDebuggerUrl);
await new Promise((opened) => (socket.onopen = opened));

const waiting = new Map();
socket.onmessage = ({ data }) => {
  const { id, result } = JSON.parse(data);
  waiting.get(id)?.(result);
};
let number = 0;
const send = (method, params) =>
  new Promise((answered) => {
    waiting.set(++number, answered);
    socket.send(JSON.stringify({ id: number, method, params }));
  });

await send("Page.navigate", { url: address });
for (const expression of expressions) {
  for (;;) {
    const { result } = await send("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true });
    if (result?.value) {
      console.log(JSON.stringify(result.value));
      break;
    }
    await new Promise((later) => setTimeout(later, 50));
  }
}
Deno.exit(0);
