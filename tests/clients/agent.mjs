// A front end for the tests: agents of one official AG-UI client, told what to do on stdin. What they must answer is
// not known here; the Python side asserts (agent.py).
//
//   node agent.mjs client-1.0.0
//
// Commands and answers are JSON, one a line, paired by "id":
//   {"id":1,"open":"a","url":"http://…","thread":"t1","headers":{}}                   → {"id":1,"result":null}
//   {"id":2,"run":"a","add":[message,…]}     the new messages behind those the agent has
//   {"id":3,"run":"a","set":[message,…]}     these instead of those the agent has
//   {"id":4,"run":"a","body":"…"}            this on the wire, whatever the client would send
//       → {"id":3,"event":{…}} for each event, when the client reports it, then
//       → {"id":3,"result":{"messages":[…],"error":null,"status":200,"type":"text/event-stream","body":"data: …"}}

import { createInterface } from "node:readline";

const { HttpAgent } = await import(process.argv[2]);
const agents = new Map();

const print = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");

function open({ open: name, url, thread, headers }) {
  const agent = new HttpAgent({ url, threadId: thread, headers, fetch: (...request) => record(agent, ...request) });
  agents.set(name, agent);
  return null;
}

// The client's own request and response pass unchanged; of the response a copy is taken.
async function record(agent, url, init) {
  const response = await fetch(url, agent.body ? { ...init, body: agent.body } : init);
  const [copy, body] = response.body.tee();
  agent.answer = { status: response.status, type: response.headers.get("content-type"), body: text(copy) };
  return new Response(body, response);
}

async function text(stream) {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let whole = "";
  try {
    for await (const piece of stream) whole += decoder.decode(piece, { stream: true });
    return whole + decoder.decode();
  } catch (error) {
    return `${whole}\n\n${error}`; // No frame that ends properly, so the Python side sees that something is wrong.
  }
}

async function run({ id, run: name, add = [], set, body: ours }) {
  const agent = agents.get(name);
  agent.body = ours;
  agent.answer = {};
  if (set) agent.setMessages(set);
  for (const message of add) agent.addMessage(message);
  let error = null;
  try {
    await agent.runAgent({}, { onEvent: ({ event }) => print({ id, event }) });
  } catch (thrown) {
    error = { message: String(thrown.message), status: thrown.status, payload: thrown.payload };
  }
  const { status, type, body } = agent.answer;
  return { messages: agent.messages, error, status, type, body: await body };
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  Promise.resolve(command)
    .then(command.open ? open : run)
    .then(
      (result) => print({ id: command.id, result }),
      (error) => print({ id: command.id, error: String(error.stack ?? error) }),
    );
}
