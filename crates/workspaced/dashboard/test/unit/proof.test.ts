import { expect, test } from "vitest";
import vectors from "../../../../../openapi/checkpoint-vectors.json" with { type: "json" };
import text from "../../../../../openapi/checkpoint-vectors.json?raw";
import { canonical, type Exact, parseExact } from "../../src/lib/canonical.ts";
import { KeyHistory, splitStatements } from "../../src/lib/key_history.ts";
import { checkInclusion as checkAny, checkRecord, fromBase64, fromHex, GENESIS, openNote, parseKey, rootFromInclusion, toHex } from "../../src/lib/proof.ts";
import { Story } from "../../src/lib/story.ts";

const exact = (value: unknown): Exact => parseExact(JSON.stringify(value));
const key = await parseKey(vectors.verifierKey);

test("canonical JSON sorts names by code points and keeps the digits of numbers", () => {
  expect(canonical(parseExact(' { "b" : [9007199254740993, true, null], "a\\u000b" : "\\/\\u00e9\\n" } '))).toBe('{"a\\u000b":"/é\\n","b":[9007199254740993,true,null]}');
  expect(canonical(parseExact('{"\u{10000}":1,"\uffff":2}'))).toBe('{"\uffff":2,"\u{10000}":1}');
});

test("JSON with a name twice, or with text after it, is refused", () => {
  for (const text of ['{"a":1,"a":2}', '{"a":1} x', '{"a"}', "[1 2]", '"\u0001"', ""]) expect(() => parseExact(text), text).toThrow();
});

test("the records of the vectors form a chain", async () => {
  let last = GENESIS;
  // `JSON.parse` changes some of the numbers in them.
  const records = (parseExact(text) as Map<string, Exact>).get("records") as Exact[];
  for (const [index, record] of vectors.records.entries()) {
    const link = await checkRecord(records[index], record.runId, last);
    expect(link).toEqual({ seq: record.seq, hash: record.hash });
    last = link as typeof last;
  }
});

test("a record that was changed, moved or taken from another run is found", async () => {
  const [record] = vectors.records;
  const check = (change: object, run = record.runId, before = GENESIS) => checkRecord(exact({ ...record, ...change }), run, before);
  expect(await check({ reason: "another" })).toContain("hash");
  expect(await check({ added: 1 })).toContain("hash");
  expect(await check({ prevHash: "1".repeat(64) })).toContain("follow");
  expect(await check({}, "another")).toContain("run");
  expect(await check({}, record.runId, { seq: 1, hash: record.hash })).toContain("number");
});

test("a record that builds on a change from outside is found", () => {
  const record = (path: string, oldSha256?: string, newSha256?: string, more: object = {}): Exact =>
    exact({ mutates: true, outcome: "ok", pathsWritten: [path], files: [{ path, oldSha256, newSha256 }], ...more });
  const story = new Story();
  expect(story.add(record("a", "base", "1"))).toBeUndefined();
  expect(story.add(record("__proto__", undefined, "1"))).toBeUndefined();
  expect(story.add(record("constructor", undefined, "1"))).toBeUndefined();
  expect(story.add(record("a", "1"))).toBeUndefined();
  for (const more of [{ outcome: "refused" }, { mutates: false }, { pathsWritten: [] }]) expect(story.add(record("a", "x", "y", more))).toBeUndefined();
  expect(story.add(record("a", undefined, "2"))).toBeUndefined();
  expect(story.add(record("a", "3", "4"))).toContain("a was 3 before it, but the record before it left 2");
  expect(story.add(record("a", "4", "5"))).toBeUndefined();
});

test("every inclusion proof of the vectors leads to its root, and to no other leaf's", async () => {
  const content = vectors.leaves.map(({ text }) => new TextEncoder().encode(text));
  for (const { index, size, proof } of vectors.inclusion) {
    const path = (proof as string[]).map(fromHex);
    const root = async (leaf: number, at: number) => toHex((await rootFromInclusion(content[leaf], at, size, path)) ?? new Uint8Array());
    expect(await root(index, index), `${index} of ${size}`).toBe(vectors.roots[size]);
    if (size > 1) expect(await root((index + 1) % size, index)).not.toBe(vectors.roots[size]);
    expect(await root(index, size)).toBe("");
  }
});

test("the notes of the vectors are accepted and refused as they say", async () => {
  for (const { note, size } of vectors.checkpoints) expect((await openNote(note, key)).size).toBe(size);
  for (const { note, why } of vectors.accepted) await expect(openNote(note, key), why).resolves.toBeTruthy();
  for (const { note, why } of vectors.refused) await expect(openNote(note, key), why).rejects.toThrow();
});

test("a record proof is accepted, and refused for another run or with another head", async () => {
  const proof = vectors.recordProof;
  const checkInclusion = (changed: object, run: string) => checkAny(exact(changed), run, (note) => openNote(note, key));
  const { head } = await checkInclusion(proof, proof.leaf.runId);
  expect(head).toEqual({ seq: proof.leaf.headSeq, hash: proof.leaf.headHash });
  await expect(checkInclusion(proof, "another")).rejects.toThrow();
  await expect(checkInclusion({ ...proof, leaf: { ...proof.leaf, headSeq: 99 } }, proof.leaf.runId)).rejects.toThrow();
  await expect(checkInclusion({ ...proof, treeSize: 1 }, proof.leaf.runId)).rejects.toThrow();
});

test("a key whose ID does not match is refused", async () => {
  await expect(parseKey(vectors.verifierKey.replace(/\+[0-9a-f]{8}\+/, "+00000000+"))).rejects.toThrow();
});

const { keyChanges } = vectors;
const follow = async (trusted: string, statements: string) => KeyHistory.follow(await parseKey(trusted), splitStatements(statements));

test("statements about changes of the key are followed from each key of the log", async () => {
  for (const trusted of keyChanges.verifierKeys) {
    const history = await follow(trusted, keyChanges.statements);
    expect(history.newest.text).toBe(keyChanges.verifierKeys[keyChanges.verifierKeys.length - 1]);
    expect(history.changes.map((change) => change.checkpoint.size)).toEqual(keyChanges.sizes);
    for (const { note, size, why } of keyChanges.accepted) expect((await history.open(note)).size, why).toBe(size);
    for (const { note, why } of keyChanges.refused) await expect(history.open(note), why).rejects.toThrow();
  }
});

test("statements that are forged, missing, forked or of another log are refused", async () => {
  for (const { trusted, statements, why } of keyChanges.refusedStatements) await expect(follow(trusted, statements), why).rejects.toThrow();
  expect(splitStatements("")).toEqual([]);
  for (const text of ["x", "\n", "a\n\n", "a\n\nb\n", "a\n\nb\n\nc"]) expect(() => splitStatements(text), text).toThrow();
});

test("base64 in another form than the standard one is refused", () => {
  for (const text of ["AAA", "AB==", "A AA=", "_w=="]) expect(() => fromBase64(text), text).toThrow();
});
