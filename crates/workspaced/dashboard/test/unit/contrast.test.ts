/** The colours of the design system can be read on every surface that they stand on, light and dark. */

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

const source = readFileSync(new URL("../../src/style/tokens.css", import.meta.url), "utf8").replace(/\/\*[^]*?\*\//g, "");
const [light, dark] = source.split("@media").map((part) => new Map([...part.matchAll(/--([\w-]+):\s*(#[0-9a-f]{6})/g)].map(([, name, value]) => [name, value])));

function luminance(colour: string): number {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
const contrast = (one: string, other: string): number => {
  const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
};

const SYNTAX = ["keyword", "string", "number", "type"];
const ON: [surface: string, texts: string[]][] = [
  ["back", ["text", "quiet", "accent", "good", "bad", "wait", ...SYNTAX]],
  ["soft", ["text", "quiet", "accent", "good", "bad", "wait", ...SYNTAX]],
  ["raised", ["text", "quiet", "accent", "good", "bad", "wait"]],
  ["accent-back", ["text", "quiet", "accent", "good", "bad", "wait", ...SYNTAX]],
  ["accent", ["on-accent"]],
  ["bad", ["back"]],
  ["good-back", ["text", "good", "quiet"]],
  ["bad-back", ["text", "bad", "quiet", "accent"]],
  ["wait-back", ["text", "wait", "quiet", "accent"]],
  ...["add", "add-mark", "add-edge", "delete", "delete-mark", "delete-edge"].map((surface): [string, string[]] => [surface, ["text", ...SYNTAX]]),
];

describe.each([["light", light], ["dark", dark]])("the colours of the %s theme", (_, colours) => {
  it.each(ON)("can be read on --%s", (surface, texts) => {
    const found = texts.map((text) => [text, contrast(colours.get(text)!, colours.get(surface)!)] as const);
    expect(found.filter(([, ratio]) => !(ratio >= 4.5)).map(([text, ratio]) => `${text} ${ratio.toFixed(2)}`)).toEqual([]);
  });
});
