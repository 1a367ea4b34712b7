// Drives the dashboard in Chromium against a running service, while a scripted agent works. Prints `done` at the end.
//
// Environment: WORKSPACED_URL, WORKSPACED_OPERATOR_TOKEN, WORKSPACED_AUDIT_TOKEN, WORKSPACED_APPROVER_TOKEN (an operator with
// the scope approve), WORKSPACED_SCREENSHOTS (a folder), WORKSPACED_KEYS (the verifier keys of the log, in turn, if they were
// replaced: then only what concerns them is tested), WORKSPACED_HUGE (not empty if the service has the run `huge`: then only that
// is tested), WORKSPACED_NODES (not empty if the service is one of two nodes, whose page alone is tested then), WORKSPACED_SIGN_IN (not
// empty if people sign in at an issuer, which alone is tested then). DASHBOARD_TESTS names the tests to run, by default all.

import { chromium } from "playwright-core";
import { Client } from "./agent.mjs";
import * as changes from "./changes.mjs";
import * as deciding from "./deciding.mjs";
import * as decisions from "./decisions.mjs";
import * as docs from "./docs.mjs";
import * as evidence from "./evidence.mjs";
import * as forks from "./forks.mjs";
import * as huge from "./huge.mjs";
import * as incident from "./incident.mjs";
import * as keys from "./keys.mjs";
import * as lists from "./lists.mjs";
import * as looks from "./looks.mjs";
import * as names from "./names.mjs";
import * as nodes from "./nodes.mjs";
import * as overview from "./overview.mjs";
import * as people from "./people.mjs";
import * as reading from "./reading.mjs";
import * as realistic from "./realistic.mjs";
import * as signIn from "./sign_in.mjs";
import * as slow from "./slow.mjs";
import * as stress from "./stress.mjs";
import * as undo from "./undo.mjs";

const env = (name) => process.env[name] ?? (() => { throw new Error(`${name} is not set`); })();
const base = env("WORKSPACED_URL");
const tokens = { operator: env("WORKSPACED_OPERATOR_TOKEN"), audit: env("WORKSPACED_AUDIT_TOKEN"), approver: env("WORKSPACED_APPROVER_TOKEN") };
const operator = new Client(base, tokens.operator);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });

/** Opens the dashboard at an address, signed in if a token is named. A console error, an uncaught error, or a request to another host than `others` fails the test. */
async function open(token, options = {}, address = base, others = []) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const problems = [];
  page.on("pageerror", (error) => problems.push(error.stack));
  page.on("dialog", (dialog) => (problems.push(`dialog: ${dialog.message()}`), dialog.dismiss()));
  page.on("console", (message) => message.type() === "error" && !/Failed to load resource/.test(message.text()) && problems.push(message.text()));
  page.on("request", (request) => ![address, ...others].some((known) => request.url().startsWith(known)) && !/^(data|blob):/.test(request.url()) && problems.push(`request to ${request.url()}`));
  if (token) {
    await page.goto(address);
    await page.getByLabel("Operator token").fill(tokens[token]);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("navigation", { name: "Pages" }).waitFor();
  }
  const close = async () => {
    await context.close();
    if (problems.length) throw new Error(problems.join("\n"));
  };
  return { page, close };
}

const ofKeys = (process.env.WORKSPACED_KEYS ?? "").split(" ").filter(Boolean);
const chosen = process.env.WORKSPACED_HUGE ? huge : process.env.WORKSPACED_NODES ? nodes : process.env.WORKSPACED_SIGN_IN ? signIn : ofKeys.length ? keys : undefined;
const tests = Object.entries(chosen ?? { ...reading, ...lists, ...changes, ...decisions, ...deciding, ...undo, ...incident, ...looks, ...names, ...people, ...slow, ...stress, ...realistic, ...docs, ...overview, ...evidence, ...forks }).filter(([name]) => name !== "longestTask");
const wanted = process.env.DASHBOARD_TESTS;
let failed = 0;
for (const [name, test] of tests) {
  if (wanted && !wanted.split(",").includes(name)) continue;
  const started = Date.now();
  try {
    await test({ base, operator, open, tokens, keys: ofKeys, screenshots: env("WORKSPACED_SCREENSHOTS") });
    console.log(`ok ${name} ${Date.now() - started} ms`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}\n${error.stack}`);
  }
}
await browser.close();
if (failed) process.exit(1);
console.log("done");
