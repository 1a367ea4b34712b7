/** The pages of the API show every operation of the document, with requests that it would take. */

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { codesByStatus, codesOf, curlOf, exampleOf, follow, indexOf, inside, limitsOf, resolve, routesOf, search, typeOf, type ApiDocument, type Schema } from "../../src/docs/document.ts";

const api = JSON.parse(readFileSync(new URL("../../../../../openapi/workspaced.json", import.meta.url), "utf8")) as ApiDocument;
const routes = routesOf(api);
const route = (name: string) => routes.find(({ operationId }) => operationId === name)!;
const codes = codesByStatus("Problems\n\n403 FORBIDDEN\n409 ALREADY_EXISTS\n409 WRITE_CONFLICT\n");

/** The required fields that an example lacks, at any depth. */
function missing(schema: Schema, value: unknown, path: string): string[] {
  const resolved = resolve(api, schema);
  if (resolved.oneOf) return missing(resolved.oneOf[0], value, path);
  if (resolved.items && Array.isArray(value)) return value.flatMap((item) => missing(resolved.items!, item, `${path}[]`));
  if (!resolved.properties || typeof value !== "object" || value === null) return [];
  const own = (resolved.required ?? []).filter((name) => !(name in value)).map((name) => `${path}.${name}`);
  return [...own, ...Object.entries(value).flatMap(([name, part]) => (resolved.properties![name] ? missing(resolved.properties![name], part, `${path}.${name}`) : []))];
}

describe("the document", () => {
  it("has every operation under a topic that is described", () => {
    const topics = api.tags.map(({ name }) => name);
    expect(routes.length).toBe(Object.values(api.paths).flatMap((item) => Object.keys(item)).length);
    expect(routes.filter(({ tags }) => !topics.includes(tags[0]))).toEqual([]);
    expect(routes.filter(({ summary, operationId }) => !summary || !operationId)).toEqual([]);
  });
  it.each(routes.map((each) => [each.operationId, each] as const))("shows a request and the answers of %s", (_, each) => {
    const json = each.requestBody?.content["application/json"]?.schema;
    if (json) expect(missing(json, exampleOf(api, json), "body")).toEqual([]);
    const request = curlOf(api, each, "http://127.0.0.1:8080");
    expect(request).toContain(each.path.split("{")[0]);
    expect(request.includes("Authorization")).toBe(!each.security?.some((way) => !Object.keys(way).length));
    for (const answer of Object.values(each.responses).map((part) => follow(api, part)))
      for (const [type, { schema }] of Object.entries(answer.content ?? {})) if (schema && type.endsWith("json")) expect(missing(schema, exampleOf(api, schema), each.operationId)).toEqual([]);
  });
});

describe("a schema", () => {
  it("is told in words, without its references", () => {
    const { labels, runId, source, ttlSeconds } = inside(api, { $ref: "#/components/schemas/CreateRunRequest" })!.properties!;
    expect(typeOf(api, labels)).toBe("map of string or null");
    expect(typeOf(api, runId)).toBe("string or null");
    expect(typeOf(api, source)).toBe("Source");
    expect(inside(api, source)!.oneOf!.map((kind) => kind.title)).toEqual(["EmptySource", "GitSource", "DirectorySource", "ArchiveSource", "RunSource"]);
    expect(typeOf(api, ttlSeconds)).toBe("integer (int64) or null");
    expect(limitsOf(api, ttlSeconds)).toEqual(["at least 1", "at most 315,360,000", "such as `3600`"]);
  });
  it("joins what it adds to another", () => {
    const problem = resolve(api, { $ref: "#/components/schemas/Problem" });
    expect(problem.properties!.hint.description).toBe("What to do next, in one sentence.");
    expect(problem.required).toContain("code");
  });
  it("that holds itself has an example that ends", () => {
    const own: ApiDocument = { ...api, components: { schemas: { Node: { type: "object", required: ["children"], properties: { children: { type: "array", items: { $ref: "#/components/schemas/Node" } } } } } } };
    expect(JSON.stringify(exampleOf(own, { $ref: "#/components/schemas/Node" })).length).toBeLessThan(100);
  });
});

describe("a request", () => {
  it("quotes what a shell would take apart", () => {
    const body: Schema = { type: "object", required: ["text"], properties: { text: { type: "string", example: "it's" } } };
    const text = curlOf(api, { operationId: "x", summary: "x", tags: ["runs"], responses: {}, method: "POST", path: "/v1/runs/{run}", requestBody: { content: { "application/json": { schema: body } } } }, "http://h");
    expect(text).toContain("'http://h/v1/runs/RUN'");
    expect(text).toContain("it'\\''s");
  });
  it("sends files as files, and JSON in a form as JSON", () => {
    const text = curlOf(api, route("applyChangeset"), "");
    expect(text).toContain("-F 'layer=@FILE'");
    expect(JSON.parse(/'changeset=(\{[^]*?\})'/.exec(text)![1])).toHaveProperty("basedOnSeq");
  });
});

describe("codes", () => {
  it("are those that the description names, else those of the status", () => {
    expect(codesOf("409", { description: "`ALREADY_EXISTS`: there is one; `NOT_A_CODE`." }, codes)).toEqual(["ALREADY_EXISTS"]);
    expect(codesOf("409", { description: "Another state." }, codes)).toEqual(["ALREADY_EXISTS", "WRITE_CONFLICT"]);
    expect(codesOf("412", { content: { "application/json": { example: { code: "WRITE_CONFLICT" } } } }, codes)).toEqual(["WRITE_CONFLICT"]);
  });
});

describe("the search", () => {
  const index = indexOf(api, routes);
  const names = (query: string) => search(index, query).map(({ operationId }) => operationId);
  it("finds a route by its name, its path, a field of its body, and a code", () => {
    expect(names("edit_file")[0]).toBe("callEditFile");
    expect(names("POST /v1/runs")[0]).toBe("createRun");
    expect(names("ttlSeconds")).toContain("createRun");
    expect(names("idempotency_key_reused")).toContain("createRun");
    expect(names("xyzzy")).toEqual([]);
  });
});
