/** Colours of source text, line by line, by a few rules for each family of languages. */

export interface Token { kind: "" | "comment" | "string" | "number" | "keyword" | "type"; text: string }
interface Language { pattern: RegExp; keywords: Set<string> }

const words = (text: string): Set<string> => new Set(text.split(" "));
const STRING = `"(?:[^"\\\\]|\\\\.)*"?|'(?:[^'\\\\]|\\\\.)*'?|\`(?:[^\`\\\\]|\\\\.)*\`?`;
// A quote begins a character literal in Rust, or a lifetime.
const RUST_STRING = `"(?:[^"\\\\]|\\\\.)*"?|'(?:[^'\\\\]|\\\\.)'`;
const REST = `|(\\b\\d[\\w.]*)|([\\p{L}_$][\\p{L}\\p{N}_$]*)`;
const language = (comment: string, keywords: string, string = STRING): Language =>
  ({ pattern: new RegExp(`(${comment})|(${string})${REST}`, "gu"), keywords: words(keywords) });

const SLASHES = "//.*|/\\*.*?(?:\\*/|$)|^\\s*\\*.*";
const HASH = "#.*";
const C = language(SLASHES, "abstract async await boolean break case catch char class const constexpr continue default delete do double else enum export extends extern false final finally float for from func function go if implements import in instanceof int interface let long namespace new nil null of package private protected public range readonly return short signed sizeof static struct super switch template this throw throws true try type typedef typeof union unsigned using var virtual void volatile while yield defer chan map select undefined");
const RUST = language(SLASHES, "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while", RUST_STRING);
const SCRIPT = language(HASH, "and as assert async await break class continue def del elif else except False finally for from global if import in is lambda None nonlocal not or pass raise return True try while with yield do done esac case fi function then local export echo end begin module require self nil unless until");
const CONFIG = language(HASH, "true false null yes no on off");
const SQL = language("--.*", "add all alter and as asc begin between by case check column commit constraint create default delete desc distinct drop else end exists foreign from full group having in index inner insert into is join key left like limit not null on or order outer primary references right rollback select set table then union unique update values view when where with ADD ALL ALTER AND AS ASC BEGIN BETWEEN BY CASE CHECK COLUMN COMMIT CONSTRAINT CREATE DEFAULT DELETE DESC DISTINCT DROP ELSE END EXISTS FOREIGN FROM FULL GROUP HAVING IN INDEX INNER INSERT INTO IS JOIN KEY LEFT LIKE LIMIT NOT NULL ON OR ORDER OUTER PRIMARY REFERENCES RIGHT ROLLBACK SELECT SET TABLE THEN UNION UNIQUE UPDATE VALUES VIEW WHEN WHERE WITH");

// A map, not an object: extensions such as `constructor` are names of an object's own prototype.
const BY_EXTENSION = new Map<string, Language>();
const assign = (extensions: string, found: Language): void => extensions.split(" ").forEach((extension) => BY_EXTENSION.set(extension, found));
assign("c h cc cpp hpp cs go java js jsx mjs cjs kt swift ts tsx scala dart php css scss json proto", C);
assign("rs", RUST);
assign("py rb sh bash zsh pl r nix", SCRIPT);
assign("toml yaml yml ini cfg conf properties dockerfile makefile lock", CONFIG);
assign("sql", SQL);

/** Returns the language of a path, by its extension or its name. */
export function languageOf(path: string): Language | undefined {
  const name = path.slice(path.lastIndexOf("/") + 1).toLowerCase();
  return BY_EXTENSION.get(name.slice(name.lastIndexOf(".") + 1));
}

/** Longer lines are shown without colours. */
const MAX_CHARACTERS = 2000;

/** Splits a line into coloured parts. Together they are the line. */
export function tokens(line: string, found: Language | undefined): Token[] {
  if (!found || line.length > MAX_CHARACTERS) return [{ kind: "", text: line }];
  const parts: Token[] = [];
  let offset = 0;
  for (const match of line.matchAll(found.pattern)) {
    const [text, comment, string, number, word] = match;
    const kind = comment !== undefined ? "comment" : string !== undefined ? "string" : number !== undefined ? "number"
      : found.keywords.has(word) ? "keyword" : /^\p{Lu}.*\p{Ll}/u.test(word) ? "type" : "";
    if (!kind) continue;
    if (match.index > offset) parts.push({ kind: "", text: line.slice(offset, match.index) });
    parts.push({ kind, text });
    offset = match.index + text.length;
  }
  if (offset < line.length) parts.push({ kind: "", text: line.slice(offset) });
  return parts;
}

export interface MarkedToken extends Token { marked: boolean }

/** Splits coloured parts at the ends of marked ranges. */
export function mark(parts: Token[], marks: [number, number][]): MarkedToken[] {
  const result: MarkedToken[] = [];
  let offset = 0;
  for (const part of parts) {
    const end = offset + part.text.length;
    const cuts = [offset, ...marks.flat().filter((cut) => cut > offset && cut < end), end];
    for (let index = 1; index < cuts.length; index += 1) {
      const [from, to] = [cuts[index - 1], cuts[index]];
      if (to > from) result.push({ kind: part.kind, text: part.text.slice(from - offset, to - offset), marked: marks.some(([a, b]) => from >= a && to <= b) });
    }
    offset = end;
  }
  return result;
}
