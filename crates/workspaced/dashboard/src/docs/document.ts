/** The OpenAPI document, as far as the pages of the API show it: operations, schemas, examples, and what a search finds. */

import { count } from "../lib/format.ts";

export interface Schema {
  $ref?: string;
  type?: string | string[];
  title?: string;
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  items?: Schema;
  allOf?: Schema[];
  oneOf?: Schema[];
  enum?: unknown[];
  "x-const"?: unknown;
  example?: unknown;
  default?: unknown;
  format?: string;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  contentSchema?: Schema;
  deprecated?: boolean;
}
export interface Parameter { $ref?: string; name: string; in: "path" | "query" | "header"; description?: string; required?: boolean; schema?: Schema }
export interface Media { schema?: Schema; example?: unknown }
export type Content = Record<string, Media>;
export interface Answer { $ref?: string; description?: string; content?: Content; headers?: Record<string, { $ref?: string; description?: string; schema?: Schema }> }
export interface Operation {
  operationId: string;
  summary: string;
  description?: string;
  tags: string[];
  parameters?: Parameter[];
  requestBody?: { description?: string; required?: boolean; content: Content };
  responses: Record<string, Answer>;
  security?: Record<string, unknown>[];
}
export interface ApiDocument {
  info: { title: string; version: string; description?: string };
  tags: { name: string; description?: string }[];
  paths: Record<string, Record<string, Operation>>;
  components: Record<string, Record<string, unknown>>;
}

/** An operation with its route. */
export interface Route extends Operation { method: string; path: string }

/** Lists the operations in the order of their topics. */
export function routesOf(document: ApiDocument): Route[] {
  const all = Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => ({ ...operation, path, method: method.toUpperCase() })));
  const topics = document.tags.map(({ name }) => name);
  return all.sort((a, b) => topics.indexOf(a.tags[0]) - topics.indexOf(b.tags[0]));
}

/** Follows a reference within the document. */
export function follow<T extends { $ref?: string }>(document: ApiDocument, part: T): T {
  if (!part.$ref) return part;
  const [, , kind, name] = part.$ref.split("/");
  return document.components[kind][name] as T;
}

/** A schema without references at its top. */
export interface Resolved extends Schema {
  /** What the document calls it. */
  name?: string;
  isNullable: boolean;
}

/** Follows references, joins what `allOf` adds, and takes `null` out of the alternatives. The description nearest to the use wins. */
export function resolve(document: ApiDocument, schema: Schema): Resolved {
  if (schema.$ref) return { name: schema.$ref.split("/").pop(), ...resolve(document, follow(document, schema)) };
  const { allOf, oneOf, ...own } = schema;
  const types = [own.type ?? []].flat();
  let resolved: Resolved = { ...own, isNullable: types.includes("null") };
  if (types.length) resolved.type = types.filter((type) => type !== "null")[0];
  for (const part of allOf ?? []) resolved = join(resolve(document, part), resolved);
  if (!oneOf) return resolved;
  const kinds = oneOf.filter(({ type }) => type !== "null");
  resolved.isNullable ||= kinds.length < oneOf.length;
  if (kinds.length > 1) return { ...resolved, oneOf: kinds };
  const only = join(resolve(document, kinds[0]), resolved);
  return { ...only, isNullable: true };
}

function join(part: Resolved, resolved: Resolved): Resolved {
  const required = [...(part.required ?? []), ...(resolved.required ?? [])];
  const properties = part.properties || resolved.properties ? { ...part.properties, ...resolved.properties } : undefined;
  const joined: Resolved = { ...part, ...resolved, required, isNullable: part.isNullable || resolved.isNullable };
  if (properties) joined.properties = properties;
  return joined;
}

/** The fields below a schema: its own, or those of the items or values that it holds. */
export function inside(document: ApiDocument, schema: Schema): Resolved | undefined {
  const resolved = resolve(document, schema);
  if (resolved.properties || resolved.oneOf) return resolved;
  const held = resolved.items ?? (typeof resolved.additionalProperties === "object" ? resolved.additionalProperties : resolved.contentSchema);
  return held && inside(document, held);
}

/** The type in a few words, such as `array of FileEdit`. */
export function typeOf(document: ApiDocument, schema: Schema): string {
  const resolved = resolve(document, schema);
  const text = () => {
    if (resolved["x-const"] !== undefined) return JSON.stringify(resolved["x-const"]);
    if (resolved.items) return `array of ${typeOf(document, resolved.items)}`;
    if (typeof resolved.additionalProperties === "object") return `map of ${typeOf(document, resolved.additionalProperties)}`;
    if (resolved.contentSchema) return `JSON text of ${typeOf(document, resolved.contentSchema)}`;
    if (resolved.oneOf && !resolved.type) return resolved.name ?? `one of ${resolved.oneOf.map((kind) => kind.title ?? typeOf(document, kind)).join(", ")}`;
    if (resolved.properties) return resolved.name ?? resolved.title ?? "object";
    return [resolved.type ?? "any value", resolved.format && `(${resolved.format})`].filter(Boolean).join(" ");
  };
  return text() + (resolved.isNullable ? " or null" : "");
}

const LIMITS: [name: keyof Schema, words: (value: string) => string][] = [
  ["minimum", (value) => `at least ${value}`], ["maximum", (value) => `at most ${value}`],
  ["minLength", (value) => `at least ${value} characters`], ["maxLength", (value) => `at most ${value} characters`],
  ["minItems", (value) => `at least ${value} items`], ["maxItems", (value) => `at most ${value} items`],
  ["pattern", (value) => `pattern \`${value}\``],
];

/** What a value must keep to, and what it may look like. */
export function limitsOf(document: ApiDocument, schema: Schema): string[] {
  const resolved = resolve(document, schema);
  const limits = LIMITS.filter(([name]) => resolved[name] !== undefined && !(name === "minimum" && resolved.minimum === 0));
  const words = limits.map(([name, text]) => text(typeof resolved[name] === "number" ? count(resolved[name]) : String(resolved[name])));
  if (resolved.default !== undefined) words.push(`default \`${JSON.stringify(resolved.default)}\``);
  if (resolved.example !== undefined) words.push(`such as \`${JSON.stringify(resolved.example)}\``);
  return words;
}

/** How deep an example fills arrays: what holds itself does so by one of them. */
const DEEPEST = 5;

/** An example of a schema: its own examples, and else the least that it takes. */
export function exampleOf(document: ApiDocument, schema: Schema, depth = 0): unknown {
  const resolved = resolve(document, schema);
  for (const given of [resolved.example, resolved["x-const"], resolved.default, resolved.enum?.[0]]) if (given !== undefined && given !== null) return given;
  if (resolved.oneOf) return exampleOf(document, resolved.oneOf[0], depth);
  if (resolved.properties) {
    const shown = Object.entries(resolved.properties).filter(([name, part]) =>
      resolved.required?.includes(name) || (depth === 0 && resolve(document, part).example !== undefined));
    return Object.fromEntries(shown.map(([name, part]) => [name, exampleOf(document, part, depth + 1)]));
  }
  if (resolved.contentSchema) return JSON.stringify(exampleOf(document, resolved.contentSchema));
  if (resolved.items) return depth < DEEPEST ? [exampleOf(document, resolved.items, depth + 1)] : [];
  switch (resolved.type) {
    case "string": return "text";
    case "integer": case "number": return resolved.minimum ?? 0;
    case "boolean": return true;
    default: return {};
  }
}

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** A request with curl: what is required, with words in capitals for what the reader fills in. */
export function curlOf(document: ApiDocument, route: Route, origin: string): string {
  const parameters = (route.parameters ?? []).map((parameter) => follow(document, parameter));
  const path = route.path.replace(/\{(\w+)\}/g, (_, name: string) => name.toUpperCase());
  const search = parameters.filter((parameter) => parameter.in === "query" && parameter.required).map(({ name, schema }) => `${name}=${encodeURIComponent(String(exampleOf(document, schema ?? {})))}`);
  const parts = [`curl ${route.method === "GET" ? "" : `-X ${route.method} `}${quoted(origin + path + (search.length ? `?${search.join("&")}` : ""))}`];
  if (!isOpen(route)) parts.push("-H 'Authorization: Bearer TOKEN'");
  for (const { name, schema } of parameters.filter((parameter) => parameter.in === "header" && parameter.required)) parts.push(`-H ${quoted(`${name}: ${String(exampleOf(document, schema ?? {}))}`)}`);
  const [type, media] = Object.entries(route.requestBody?.content ?? {})[0] ?? [];
  if (type === "application/json") parts.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(media?.example ?? exampleOf(document, media?.schema ?? {}), null, 2))}`);
  else if (type === "multipart/form-data") {
    const fields = resolve(document, media?.schema ?? {}).properties ?? {};
    for (const [name, field] of Object.entries(fields)) {
      const isFile = resolve(document, field).type === undefined || resolve(document, field).format === "binary" || resolve(document, field).items !== undefined;
      parts.push(`-F ${quoted(isFile ? `${name}=@FILE` : `${name}=${asText(exampleOf(document, field))}`)}`);
    }
  } else if (type) parts.push(`-H ${quoted(`Content-Type: ${type}`)}`, "--data-binary @FILE");
  return parts.join(" \\\n  ");
}

const asText = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

/** Whether a request needs no token. */
export const isOpen = (route: Route): boolean => route.security?.some((way) => Object.keys(way).length === 0) ?? false;

/** The codes of a refusal by their status, from the list of the service: a status and a code a line. */
export function codesByStatus(list: string): Map<string, string[]> {
  const byStatus = new Map<string, string[]>();
  for (const [, status, code] of list.matchAll(/^(\d{3}) ([A-Z_0-9]+)$/gm)) byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  return byStatus;
}

/** The codes that a refusal may have: those that its description names, else all of its status, else that of its example. */
export function codesOf(status: string, answer: Answer, byStatus: ReadonlyMap<string, string[]>): string[] {
  const known = new Set([...byStatus.values()].flat());
  const named = [...(answer.description ?? "").matchAll(/`([A-Z][A-Z0-9_]+)`/g)].map(([, code]) => code).filter((code) => known.has(code));
  if (named.length) return [...new Set(named)];
  const examples = Object.values(answer.content ?? {}).map(({ example }) => (example as { code?: string } | undefined)?.code);
  return byStatus.get(status) ?? [...new Set(examples.filter((code) => code !== undefined))];
}

/** The names of the fields of a schema and of all that it holds. */
function fieldNames(document: ApiDocument, schema: Schema, names: Set<string>, seen: Set<string>): void {
  if (schema.$ref) {
    if (seen.has(schema.$ref)) return;
    seen.add(schema.$ref);
    return fieldNames(document, follow(document, schema), names, seen);
  }
  for (const [name, part] of Object.entries(schema.properties ?? {})) {
    names.add(name);
    fieldNames(document, part, names, seen);
  }
  const held = [schema.items, schema.additionalProperties, schema.contentSchema, ...(schema.allOf ?? []), ...(schema.oneOf ?? [])];
  for (const part of held) if (typeof part === "object") fieldNames(document, part, names, seen);
}

/** What a search looks at: what names the route, and all that is said about it. */
export interface Indexed { route: Route; title: string; text: string }

export function indexOf(document: ApiDocument, routes: Route[]): Indexed[] {
  return routes.map((route) => {
    const names = new Set<string>();
    const seen = new Set<string>();
    const answers = Object.values(route.responses).map((answer) => follow(document, answer));
    for (const content of [route.requestBody?.content, ...answers.map((answer) => answer.content)])
      for (const { schema } of Object.values(content ?? {})) if (schema) fieldNames(document, schema, names, seen);
    const parameters = (route.parameters ?? []).map((parameter) => follow(document, parameter));
    const title = `${route.operationId} ${route.method} ${route.path} ${route.summary}`.toLowerCase();
    const rest = [route.tags[0], route.description, ...parameters.flatMap(({ name, description }) => [name, description]), ...names, ...answers.map(({ description }) => description)];
    return { route, title, text: `${title} ${rest.join(" ").toLowerCase()}` };
  });
}

/** The routes that have every word, first those that are named so, of which the shortest come first. */
export function search(index: Indexed[], query: string): Route[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = index.filter(({ text }) => words.every((word) => text.includes(word)));
  const isNamed = ({ title }: Indexed) => words.every((word) => title.includes(word));
  const named = found.filter(isNamed).sort((a, b) => a.title.length - b.title.length);
  return [...named, ...found.filter((entry) => !isNamed(entry))].map(({ route }) => route);
}
