/** JSON without loss: numbers keep their digits, so that a record hashes as it was written. */

/** A number as its text: `Number` is not exact above 2^53. */
export class ExactNumber {
  constructor(readonly text: string) {}
}
export type Exact = null | boolean | string | ExactNumber | Exact[] | Map<string, Exact>;

const TOKEN = /\s*(?:([{}[\],:])|("(?:[^"\\\u0000-\u001f]|\\.)*")|(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)|(true|false|null))/y;

class Parser {
  private offset = 0;
  constructor(private readonly text: string) {}

  private next(): RegExpExecArray {
    TOKEN.lastIndex = this.offset;
    const token = TOKEN.exec(this.text);
    if (!token) throw new Error(`invalid JSON at ${this.offset}`);
    this.offset = TOKEN.lastIndex;
    return token;
  }

  value(token = this.next()): Exact {
    if (token[2] !== undefined) return JSON.parse(token[2]) as string;
    if (token[3] !== undefined) return new ExactNumber(token[3]);
    if (token[4] !== undefined) return token[4] === "null" ? null : token[4] === "true";
    if (token[1] === "[") return this.array();
    if (token[1] === "{") return this.object();
    throw new Error(`invalid JSON at ${this.offset}`);
  }

  private array(): Exact[] {
    const items: Exact[] = [];
    let token = this.next();
    if (token[1] === "]") return items;
    for (;;) {
      items.push(this.value(token));
      const separator = this.next()[1];
      if (separator === "]") return items;
      if (separator !== ",") throw new Error(`invalid JSON at ${this.offset}`);
      token = this.next();
    }
  }

  private object(): Map<string, Exact> {
    const members = new Map<string, Exact>();
    let token = this.next();
    if (token[1] === "}") return members;
    for (;;) {
      if (token[2] === undefined || this.next()[1] !== ":") throw new Error(`invalid JSON at ${this.offset}`);
      const name = JSON.parse(token[2]) as string;
      if (members.has(name)) throw new Error("a name occurs twice");
      members.set(name, this.value());
      const separator = this.next()[1];
      if (separator === "}") return members;
      if (separator !== ",") throw new Error(`invalid JSON at ${this.offset}`);
      token = this.next();
    }
  }

  end(): void {
    if (this.text.slice(this.offset).trim()) throw new Error(`text after the JSON value at ${this.offset}`);
  }
}

/** Parses JSON. Throws on a name that occurs twice in an object. */
export function parseExact(text: string): Exact {
  const parser = new Parser(text);
  const value = parser.value();
  parser.end();
  return value;
}

/** The order of UTF-8 bytes, which is that of code points and not that of UTF-16. */
function compareNames(a: string, b: string): number {
  const [left, right] = [[...a], [...b]];
  for (let index = 0; index < left.length && index < right.length; index += 1) {
    const difference = left[index].codePointAt(0)! - right[index].codePointAt(0)!;
    if (difference) return difference;
  }
  return left.length - right.length;
}

/** Returns the canonical JSON of a value. */
export function canonical(value: Exact): string {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (value instanceof ExactNumber) return value.text;
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  const names = [...value.keys()].sort(compareNames);
  return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(value.get(name)!)}`).join(",")}}`;
}
