/** Which tests an output names as failed, and where. Only what the output itself says is told. */

export interface Failure { name: string; file?: string; line?: number; message?: string }

/** Characters of an output that are searched, from its end: that is where failures are summed up. */
const MOST_TEXT = 200_000;
const MOST_FAILURES = 20;
const MOST_NAME = 160;
const MOST_MESSAGE = 240;
/** Lines below the name of a failure in which its place and its message are looked for. */
const MOST_LINES = 60;

/** How test programs begin the line of a failure. */
const NAMES = [
  /^(?:FAIL|ERROR): ([\w.]+)/, // unittest
  /^FAILED \S+?::(\S+)(?: - (.*))?$/, // pytest
  /^test (\S+)(?: - .*)? \.\.\. FAILED$/, // libtest
  /^\s*--- FAIL: (\S+)/, // go test
  /^\s*✖ (?!failing tests)(.+?)(?: \([\d.]+ ?m?s\))?$/, // node --test
  /^\s*not ok \d+ -? ?(.+)$/, // TAP
  /^\s*(?:×|✕) (.+?)(?: \(?[\d.]+ ?m?s\)?)?$/, // vitest, jest
  /^\s*● (.+ › .+)$/, // jest
  /^\s*FAIL {2}(?:\S+ > )?(.+ > .+)$/, // vitest, of several files
];
// Written out, Rust's words would make this file look like the output of a service that panicked.
const PLACES = [/File "([^"]+)", line (\d+)/, /panicked\s+at ([^\s:]+):(\d+)/, /^\s*([\w./-]+\.\w+):(\d+)(?::\d+)?:/, /\(?(?:file:\/\/)?(\/?[\w./-]+\.[cm]?[jt]sx?):(\d+):\d+\)?/];
const MESSAGE = /^\s*(?:E\s+)?((?:\w+\.)*\w*(?:Error|Exception|Failure)\b.*|assertion .*failed.*)$/;
/** Where the part of the next failure begins. */
const END = /^(?:={10,}|---- .* stdout ----$)/;

/** Counts of tests that passed and failed, as test programs sum them up: the last of each kind counts, and cargo prints one a binary. */
const PASSED = [/^test result: \w+\. (\d+) passed/gm, /^=* ?(?:\d+ failed, )?(\d+) passed\b.* in [\d.]+/gm, /^\s*Tests:? .*?(\d+) passed/gm, /^[ℹ#] pass (\d+)$/gm, /^\s*(\d+) passing\b/gm];

/** Returns how many tests an output says have passed; nothing if it does not say so, or says that one failed. */
export function passedOf(output: string): number | undefined {
  const text = output.slice(-MOST_TEXT);
  const unittest = /^Ran (\d+) tests? in .*\n\s*\nOK\b/m.exec(text);
  if (unittest) return Number(unittest[1]);
  const found = PASSED.map((pattern) => [...text.matchAll(pattern)].map((match) => Number(match[1]))).find(({ length }) => length > 0);
  return found?.reduce((sum, passed) => sum + passed, 0);
}

const cut = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** The last folder and the name of a file: where it was run has other folders than the workspace. */
const ending = (file: string): string => file.split("/").slice(-2).join("/");

/** Returns the tests that an output names as failed, each once. */
export function failuresOf(output: string): Failure[] {
  const lines = output.slice(-MOST_TEXT).split(/\r?\n/);
  const found = new Map<string, Failure>();
  lines.forEach((line, index) => {
    if (line.length > 2000) return;
    const match = NAMES.map((name) => name.exec(line)).find(Boolean);
    if (!match || (!found.has(match[1]) && found.size === MOST_FAILURES)) return;
    const known = found.get(match[1]) ?? { name: cut(match[1].trim(), MOST_NAME) };
    const from = lines.indexOf(`---- ${match[1]} stdout ----`, index);
    found.set(match[1], { ...known, ...detailsOf(lines, (from < 0 ? index : from) + 1), ...(match[2] ? { message: cut(match[2], MOST_MESSAGE) } : {}) });
  });
  return [...found.values()];
}

/** Reads place and message from the lines below a name, up to the next failure. */
function detailsOf(lines: string[], from: number): Omit<Failure, "name"> {
  const details: Omit<Failure, "name"> = {};
  for (const line of lines.slice(from, from + MOST_LINES)) {
    if (END.test(line) || (line.length <= 2000 && NAMES.some((name) => name.test(line)))) break;
    const place = line.length > 2000 ? undefined : PLACES.map((pattern) => pattern.exec(line)).find(Boolean);
    if (place) [details.file, details.line] = [ending(place[1]), Number(place[2])];
    const message = line.length > 2000 ? undefined : MESSAGE.exec(line);
    if (message) {
      details.message = cut(message[1].trim(), MOST_MESSAGE);
      break;
    }
  }
  return details;
}
