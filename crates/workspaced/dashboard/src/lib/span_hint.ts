/** How long a time is that a line of code computes: `IDLE_SECONDS = 30 * 60 * 60` is 30 hours. */

/** A product of whole numbers that is all of the value that a name is given. */
const PRODUCT = /([A-Za-z_]\w{0,99})\s*(?::\s*[\w.]{1,40}\s*)?[:=]\s*(\d[\d_]{0,15}(?:\s*\*\s*\d[\d_]{0,15}){1,7})\s*[;,})\]]{0,3}\s*(?:(?:\/\/|#).*)?$/;
/** The unit that a name ends with, in milliseconds. */
const UNITS: [RegExp, number][] = [[/milli(?:second)?s$|_ms$|[a-z]Ms$/i, 1], [/sec(?:ond)?s$/i, 1000], [/min(?:ute)?s$/i, 60_000]];
const SPANS: [number, string][] = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1000, "s"]];
const MOST_CHARACTERS = 300;

/** Returns the time in the largest unit that says it exactly; nothing for a line that computes none, or where nothing is computed. */
export function spanOf(line: string): string | undefined {
  if (line.length > MOST_CHARACTERS) return undefined;
  const [, name, product] = PRODUCT.exec(line.trimEnd()) ?? [];
  const unit = name && UNITS.find(([ending]) => ending.test(name))?.[1];
  if (!unit) return undefined;
  const millis = product.split("*").reduce((all, factor) => all * Number(factor.replaceAll("_", "").trim()), unit);
  const found = Number.isSafeInteger(millis) && millis > 0 ? SPANS.find(([span, text]) => millis % span === 0 && (text !== "d" || millis > span)) : undefined;
  return found && `${millis / found[0]} ${found[1]}`;
}
