// A browser for the tests: headless Chromium through Playwright, told what to do on stdin. What the page must show is
// not known here; the Python side asserts (browser.py).
//
//   node browser.mjs /usr/bin/chromium
//
// Commands and answers are JSON, one a line, paired by "id":
//   {"id":1,"page":"p1","call":["goto","http://…"]}                                   a method of the page
//   {"id":2,"page":"p1","find":[["getByLabel","Message"]],"call":["fill","hello"]}    a method of what is found there
//   {"id":3,"page":"p1","call":["evaluate","(value) => …",value]}                     a function to call in the page;
//                                                                   with waitForFunction: until it returns true
//       → {"id":2,"result":…}: the text, or the function's value, or null; or {"id":2,"error":"…"}
// A page has a context of its own, and is opened by the first command that names it. {"id":4,"errors":"p1"} gives what
// its console complained about.

import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

// Debian's Chromium wants no sandbox when it is root (CI), and the rest keeps it from calling home.
const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"];
args.push("--disable-background-networking", "--disable-component-update", "--disable-sync");
const browser = await chromium.launch({ executablePath: process.argv[2], args });
const pages = new Map();

const print = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");

async function open() {
  const page = await browser.newPage();
  const errors = [];
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(String(error)));
  page.setDefaultTimeout(20_000);
  return { page, errors };
}

async function perform({ page: name, find = [], call: [method, ...values], errors }) {
  if (!pages.has(name)) pages.set(name, open());
  const { page } = await pages.get(name);
  if (method === "evaluate") return page.evaluate(eval(values[0]), values[1]);
  if (method === "waitForFunction") return void (await page.waitForFunction(eval(values[0]), values[1]));
  const found = find.reduce((at, [how, ...what]) => at[how](...what), page);
  const result = await found[method](...values);
  return typeof result === "string" ? result : null;
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  const done = command.errors ? pages.get(command.errors).then(({ errors }) => errors) : perform(command);
  done.then(
    (result) => print({ id: command.id, result: result ?? null }),
    (error) => print({ id: command.id, error: String(error.stack ?? error) }),
  );
}
await browser.close();
