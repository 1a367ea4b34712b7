/** How long a time, or how large a size, is that a line of code computes: `IDLE_SECONDS = 30 * 60 * 60` is 30 hours. */

import type { FileDiff } from "./diff.ts";

/** A product of whole numbers that is all of the value that a name is given. */
const PRODUCT = /([A-Za-z_]\w{0,99})\s*(?::\s*[\w.]{1,40}\s*)?[:=]\s*(\d[\d_]{0,15}(?:\s*\*\s*\d[\d_]{0,15}){1,7})\s*[;,})\]]{0,3}\s*(?:(?:\/\/|#).*)?$/;
/** The unit that a name ends with, in milliseconds or bytes, and the larger units of its kind. */
const TIMES: [number, string][] = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1000, "s"]];
const SIZES: [number, string][] = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [1024, "KiB"], [1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1000, "kB"]];
const UNITS: [RegExp, number, [number, string][]][] = [[/milli(?:second)?s$|_ms$|[a-z]Ms$/i, 1, TIMES], [/sec(?:ond)?s$/i, 1000, TIMES], [/min(?:ute)?s$/i, 60_000, TIMES], [/bytes$/i, 1, SIZES]];
const MOST_CHARACTERS = 300;

/** Returns the time or the size in the unit that says it exactly with the smallest number; nothing for a line that computes none, or where nothing is computed. */
export function spanOf(line: string): string | undefined {
  if (line.length > MOST_CHARACTERS) return undefined;
  const [, name, product] = PRODUCT.exec(line.trimEnd()) ?? [];
  const [, unit, units] = (name && UNITS.find(([ending]) => ending.test(name))) || [];
  if (!unit || !units) return undefined;
  const value = product.split("*").reduce((all, factor) => all * Number(factor.replaceAll("_", "").trim()), unit);
  if (!Number.isSafeInteger(value) || value <= 0) return undefined;
  // One day is told as 24 hours.
  const [found] = units.filter(([span, text]) => value % span === 0 && (text !== "d" || value > span)).sort(([a], [b]) => b - a);
  return found && `${value / found[0]} ${found[1]}`;
}

/** A number with a unit in a sentence. */
const SAID = /(?<![\w.])(\d{1,9})[ \u00a0-]?(ms|milliseconds?|s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?|d|days?|bytes?|[kMGT]i?B)\b/gi;
/** Units that mean the same: their first letter says which, of a time or of a size. */
function unitOf(unit: string): string {
  if (/^(?:ms|milli)/i.test(unit)) return "time ms";
  return /^[kmgt]?i?b$|^bytes?$/i.test(unit) ? `size ${unit[0].toLowerCase()}` : `time ${unit[0].toLowerCase()}`;
}
/** Characters of a text that are searched. */
const MOST_TEXT = 20_000;

/** Returns what a text says with the same number and another unit of time or size, or that it `agrees`; nothing if it says neither. */
function saidOf(hint: string, text: string): { said: string } | "agrees" | undefined {
  const [number, unit] = hint.split(" ");
  const said = [...text.slice(0, MOST_TEXT).matchAll(SAID)].filter(([, other]) => Number(other) === Number(number));
  const own = unitOf(unit);
  if (said.some(([, , other]) => unitOf(other) === own)) return "agrees";
  const found = said.find(([, , other]) => unitOf(other).slice(0, 4) === own.slice(0, 4));
  return found && { said: found[0] };
}

/** A line that was added and computes another time or size than the task, or the agent, says. */
export interface Doubt { path: string; line: number; text: string; hint: string; said: string; by: "task" | "agent" }

/** Returns the added lines that compute something, and what that is. */
export const computedIn = (files: FileDiff[]): Omit<Doubt, "said" | "by">[] =>
  files.flatMap(({ path, hunks }) => hunks.flatMap(({ lines }) => lines.flatMap(({ type, text, new: line }) => {
    const hint = type === "add" ? spanOf(text) : undefined;
    return hint === undefined ? [] : [{ path, line: line ?? 0, text, hint }];
  })));

/** Returns those of them that contradict what the task says, or, where it says nothing of that, what the agent says of its change. */
export const doubtsOf = (computed: Omit<Doubt, "said" | "by">[], task = "", reason = ""): Doubt[] =>
  computed.flatMap((found): Doubt[] => {
    const byTask = saidOf(found.hint, task);
    const said = byTask ?? saidOf(found.hint, reason);
    return said === undefined || said === "agrees" ? [] : [{ ...found, ...said, by: byTask ? "task" : "agent" }];
  });

/** Says in a few words what a line computes, and what it should. */
export const doubtInWords = ({ hint, said, by }: Doubt): string => `${hint}, not ${said} as the ${by} says`;
