/** Numbers, times and hashes as text. */

const counts = new Intl.NumberFormat("en-GB");
export const count = (value: number): string => counts.format(value);

export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function duration(micros: number): string {
  if (micros < 1000) return `${micros} µs`;
  if (micros < 1_000_000) return `${(micros / 1000).toFixed(micros < 10_000 ? 1 : 0)} ms`;
  if (micros < 60_000_000) return `${(micros / 1_000_000).toFixed(1)} s`;
  return span(micros / 1_000_000);
}

/** A span of seconds in its two largest units. */
export function span(seconds: number): string {
  const rest = Math.max(0, Math.floor(seconds));
  const [d, h, m] = [Math.floor(rest / 86400), Math.floor(rest / 3600) % 24, Math.floor(rest / 60) % 60];
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} min`;
  if (m) return `${m} min`;
  return `${rest} s`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const exact = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });
export const clockTime = (time: string): string => clock.format(new Date(time));
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
/** The time of today, or the day and the time. */
export const dayTime = (time: string): string => (new Date(time).toDateString() === new Date().toDateString() ? clockTime(time) : day.format(new Date(time)));
/** The exact time in the reader's zone, which it names. */
export const exactTime = (time: string): string => exact.format(new Date(time));
export function ago(time: string, now: number): string {
  const seconds = (now - Date.parse(time)) / 1000;
  return seconds < 0 ? `in ${span(-seconds)}` : `${span(seconds)} ago`;
}

/** The time so many hours ago as the API takes it; empty for no hours. */
export const hoursAgo = (hours: string): string => (hours ? new Date(Date.now() - Number(hours) * 3600_000).toISOString() : "");

export const short = (hash: string): string => hash.slice(0, 10);

/** Replaces characters that change the direction or the look of the text around them by their visible code. */
export function visible(text: string): string {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufff9-\uffff]|\p{Default_Ignorable_Code_Point}/gu, (character) =>
    `\\u{${character.codePointAt(0)!.toString(16)}}`);
}

/** A path as text: also line breaks, tabs, and blanks at the ends of its names are made visible. */
export const visiblePath = (path: string): string =>
  visible(path).replaceAll("\n", "\\n").replaceAll("\t", "\\t").replace(/(?<=^|\/) +| +(?=$|\/)/g, (blanks) => "\\u{20}".repeat(blanks.length));
