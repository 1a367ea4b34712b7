/** What `openapi/checkpoints.md` asks of a verifier: hashes of records, the chain, Merkle proofs and signed notes. */

import { canonical, type Exact, ExactNumber } from "./canonical.ts";

const encoder = new TextEncoder();

export async function sha256(...parts: Uint8Array[]): Promise<Uint8Array> {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.length;
  }
  return new Uint8Array(await crypto.subtle.digest("SHA-256", whole));
}

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));
export const toHex = (data: Uint8Array): string => Array.from(data, (byte) => HEX[byte]).join("");
export function fromHex(text: string): Uint8Array {
  if (!/^([0-9a-f]{2})*$/.test(text)) throw new Error("not a hash");
  return Uint8Array.from({ length: text.length / 2 }, (_, index) => parseInt(text.slice(index * 2, index * 2 + 2), 16));
}
/** Decodes base64 with padding. Other forms of the same bytes are refused. */
export function fromBase64(text: string): Uint8Array {
  const binary = atob(text);
  if (btoa(binary) !== text) throw new Error("base64 is malformed");
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}

export const isEqual = (a: Uint8Array, b: Uint8Array): boolean => a.length === b.length && a.every((byte, index) => byte === b[index]);
const number = (value: Exact | undefined): number => (value instanceof ExactNumber ? Number(value.text) : NaN);

export interface Link { seq: number; hash: string }
export const GENESIS: Link = { seq: 0, hash: "0".repeat(64) };

/** Checks one record against the one before it. Returns the record's link, or the text of what is wrong. */
export async function checkRecord(record: Exact, run: string, before: Link): Promise<Link | string> {
  if (!(record instanceof Map)) return "is not an object";
  const seq = number(record.get("seq"));
  if (seq !== before.seq + 1) return `has the number ${seq} after ${before.seq}`;
  if (record.get("runId") !== run) return "belongs to another run";
  if (record.get("prevHash") !== before.hash) return "does not follow the record before it";
  const content = new Map(record);
  content.delete("hash");
  const hash = toHex(await sha256(encoder.encode(canonical(content))));
  if (record.get("hash") !== hash) return "does not match its hash";
  return { seq, hash };
}

/** Returns the root that an inclusion proof of RFC 6962 leads to (RFC 9162, 2.1.3.2). */
export async function rootFromInclusion(leaf: Uint8Array, index: number, size: number, proof: Uint8Array[]): Promise<Uint8Array | undefined> {
  if (index >= size) return undefined;
  let [position, last] = [index, size - 1];
  let root = await sha256(Uint8Array.of(0), leaf);
  for (const sibling of proof) {
    if (last === 0) return undefined;
    if (position % 2 === 1 || position === last) {
      root = await sha256(Uint8Array.of(1), sibling, root);
      while (position % 2 === 0 && position !== 0) {
        position = Math.floor(position / 2);
        last = Math.floor(last / 2);
      }
    } else {
      root = await sha256(Uint8Array.of(1), root, sibling);
    }
    position = Math.floor(position / 2);
    last = Math.floor(last / 2);
  }
  return last === 0 ? root : undefined;
}

export interface VerifierKey { name: string; id: Uint8Array; key: Uint8Array; text: string }

/** Parses `NAME+ID+BASE64`, and checks that the ID is the one of the key. */
export async function parseKey(text: string): Promise<VerifierKey> {
  const parts = /^([^\s+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/=]+)$/.exec(text.trim());
  if (!parts) throw new Error("the verifier key is malformed");
  const [name, id, encoded] = [parts[1], fromHex(parts[2]), fromBase64(parts[3])];
  if (encoded.length !== 33 || encoded[0] !== 1) throw new Error("the verifier key is not an Ed25519 key");
  const key = encoded.slice(1);
  const expected = await sha256(encoder.encode(`${name}\n`), encoded);
  if (!isEqual(expected.slice(0, 4), id)) throw new Error("the verifier key does not match its ID");
  return { name, id, key, text: parts[0] };
}

export interface Checkpoint { origin: string; size: number; root: Uint8Array }

/** The note has no signature by the key, or an invalid one. */
export class NotSigned extends Error {}

/** Returns the text of a signed note, which its signatures are over. */
export function noteText(note: string): string {
  const end = note.indexOf("\n\n");
  if (end < 0 || !note.endsWith("\n")) throw new Error("the checkpoint is malformed");
  return note.slice(0, end + 1);
}

/** Verifies a signed note and returns its checkpoint. Throws with the reason if the note is not acceptable. */
export async function openNote(note: string, key: VerifierKey): Promise<Checkpoint> {
  const text = noteText(note);
  let signatures = 0;
  const imported = await crypto.subtle.importKey("raw", key.key as BufferSource, "Ed25519", false, ["verify"]);
  for (const line of note.slice(text.length + 1, -1).split("\n")) {
    const parts = /^\u2014 (\S+) ([A-Za-z0-9+/]+=*)$/.exec(line);
    if (!parts) throw new Error("a signature line is malformed");
    const data = fromBase64(parts[2]);
    if (data.length < 5) throw new Error("a signature line is malformed");
    if (parts[1] !== key.name || !isEqual(data.slice(0, 4), key.id)) continue;
    if (!(await crypto.subtle.verify("Ed25519", imported, data.slice(4) as BufferSource, encoder.encode(text) as BufferSource)))
      throw new NotSigned("the checkpoint's signature is not valid");
    signatures += 1;
  }
  if (!signatures) throw new NotSigned("the checkpoint is not signed by the known key");
  const lines = text.slice(0, -1).split("\n");
  if (lines[0] !== key.name || lines.length < 3 || !/^(0|[1-9]\d*)$/.test(lines[1]) || lines.slice(3).includes(""))
    throw new Error("the note is not a checkpoint of this log");
  const root = fromBase64(lines[2]);
  if (root.length !== 32) throw new Error("the checkpoint's root is malformed");
  return { origin: lines[0], size: Number(lines[1]), root };
}

/** Verifies an inclusion proof of the service for a run, whose checkpoint `open` verifies. Returns what it confirms: the leaf's head and the checkpoint. */
export async function checkInclusion(proof: Exact, run: string, open: (note: string) => Promise<Checkpoint>): Promise<{ head: Link; checkpoint: Checkpoint }> {
  if (!(proof instanceof Map)) throw new Error("the proof is malformed");
  const checkpoint = await open(String(proof.get("checkpoint")));
  if (number(proof.get("treeSize")) !== checkpoint.size) throw new Error("the proof is for another checkpoint");
  const leaf = proof.get("leaf");
  if (!(leaf instanceof Map) || leaf.get("runId") !== run) throw new Error("the proof is for another run");
  const siblings = proof.get("proof");
  if (!Array.isArray(siblings)) throw new Error("the proof is malformed");
  const path = siblings.map((hash) => fromHex(String(hash)));
  const root = await rootFromInclusion(encoder.encode(canonical(leaf)), number(proof.get("leafIndex")), checkpoint.size, path);
  if (!root || !isEqual(root, checkpoint.root)) throw new Error("the proof does not lead to the signed root");
  return { head: { seq: number(leaf.get("headSeq")), hash: String(leaf.get("headHash")) }, checkpoint };
}
