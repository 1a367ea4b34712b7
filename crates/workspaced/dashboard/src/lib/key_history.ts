/** The keys of a log: checkpoints by which one key names its successor, which both have signed (`openapi/checkpoints.md`, "Changes of the key"). */

import { type Checkpoint, isEqual, noteText, NotSigned, openNote, parseKey, type VerifierKey } from "./proof.ts";

/** A log has at most this many statements. */
const MAX_CHANGES = 256;

/** The statements, or a checkpoint of a log with them, are not acceptable. */
export class KeyHistoryError extends Error {}

export interface KeyChange {
  /** The state of the log that both have signed. Checkpoints over as many leaves or more are signed by the new key. */
  checkpoint: Checkpoint;
  old: VerifierKey;
  new: VerifierKey;
}

/** Splits the answer of `GET /v1/checkpoint/key/changes` into its notes. */
export function splitStatements(text: string): string[] {
  const parts = text.split("\n\n");
  if (parts.pop() !== "" || parts.length % 2) throw new KeyHistoryError("the statements about changes of the key are malformed");
  return Array.from({ length: parts.length / 2 }, (_, index) => `${parts[index * 2]}\n\n${parts[index * 2 + 1]}\n`);
}

export const isSameKey = (a: VerifierKey, b: VerifierKey): boolean => a.name === b.name && isEqual(a.key, b.key);

/** Verifies the signature of a statement by a key that it names. */
async function openBy(note: string, key: VerifierKey, which: string): Promise<Checkpoint> {
  try {
    return await openNote(note, key);
  } catch (error) {
    if (!(error instanceof NotSigned)) throw error;
    throw new KeyHistoryError(`a statement is not signed by the ${which} that it names: it is forged`);
  }
}

const parseNamedKey = (text: string): Promise<VerifierKey> =>
  parseKey(text).catch((error: Error) => Promise.reject(new KeyHistoryError(`a statement names a key that cannot be used: ${error.message}`)));

/** Verifies that a note is a statement, and that both keys that it names have signed it. */
async function openChange(note: string): Promise<KeyChange> {
  const fields = /^[^\n]+\n[^\n]+\n[^\n]+\nold-key ([^\n]+)\nnew-key ([^\n]+)\n$/.exec(noteText(note));
  if (!fields) throw new KeyHistoryError("a note among the changes of the key is not a statement about one");
  const [old, replacement] = [await parseNamedKey(fields[1]), await parseNamedKey(fields[2])];
  if (old.name !== replacement.name || isEqual(old.id, replacement.id)) throw new KeyHistoryError("a statement does not name two keys of one log");
  const checkpoint = await openBy(note, old, "old key");
  await openBy(note, replacement, "new key");
  return { checkpoint, old, new: replacement };
}

/** Checks that a statement continues those before it. */
function checkNext(changes: KeyChange[], change: KeyChange): void {
  const { size } = change.checkpoint;
  if (changes.some((earlier) => isSameKey(earlier.old, change.new))) throw new KeyHistoryError(`the statement at ${size} leaves names a key that was replaced before`);
  const last = changes[changes.length - 1];
  if (!last) return;
  if (!isSameKey(last.new, change.old)) throw new KeyHistoryError(`the statement at ${size} leaves does not replace the key that the one before it names: one is missing, or the log has forked`);
  if (size <= last.checkpoint.size) throw new KeyHistoryError(`the statement at ${size} leaves follows one at ${last.checkpoint.size}`);
}

/** The keys of a log, each with the tree sizes for which it signs. */
export class KeyHistory {
  private constructor(readonly key: VerifierKey, readonly changes: KeyChange[]) {}

  /** Follows the statements of a log, in their order. They have to be one chain with `key` in it. */
  static async follow(key: VerifierKey, notes: string[]): Promise<KeyHistory> {
    if (notes.length > MAX_CHANGES) throw new KeyHistoryError(`there are more than ${MAX_CHANGES} statements about changes of the key`);
    const changes: KeyChange[] = [];
    for (const note of notes) {
      const change = await openChange(note);
      checkNext(changes, change);
      changes.push(change);
    }
    const history = new KeyHistory(key, changes);
    if (!history.names(key)) throw new KeyHistoryError("no statement about a change of the key names the key that signs now: one is missing, or they belong to another log");
    return history;
  }

  /** Whether a key is one of this history, so that statements connect it with the others. */
  names(key: VerifierKey): boolean {
    if (!this.changes.length) return isSameKey(this.key, key);
    return this.changes.some((change) => isSameKey(change.old, key) || isSameKey(change.new, key));
  }

  /** The key that signs new checkpoints. */
  get newest(): VerifierKey {
    return this.changes[this.changes.length - 1]?.new ?? this.key;
  }

  /** The tree size of the last statement: an older checkpoint is not the newest one of the log. */
  get changedAt(): number {
    return this.changes[this.changes.length - 1]?.checkpoint.size ?? 0;
  }

  /** Verifies a checkpoint: the key that was in force for its size has signed it. */
  async open(note: string): Promise<Checkpoint> {
    const size = Number(noteText(note).split("\n")[1]);
    const next = this.changes.find((change) => size < change.checkpoint.size);
    const checkpoint = await this.openBySigner(note, size, next?.old ?? this.newest);
    const sameSize = this.changes.find((change) => change.checkpoint.size === checkpoint.size);
    if (sameSize && !isEqual(sameSize.checkpoint.root, checkpoint.root)) throw new KeyHistoryError(`the checkpoint and the statement over ${size} leaves have different roots: the log has forked`);
    return checkpoint;
  }

  private async openBySigner(note: string, size: number, key: VerifierKey): Promise<Checkpoint> {
    try {
      return await openNote(note, key);
    } catch (error) {
      if (!(error instanceof NotSigned)) throw error;
      for (const other of this.changes.flatMap((change) => [change.old, change.new]))
        if (await openNote(note, other).catch(() => undefined)) throw new KeyHistoryError(`the checkpoint over ${size} leaves is signed by a key that was not in force for it`);
      throw error;
    }
  }
}
