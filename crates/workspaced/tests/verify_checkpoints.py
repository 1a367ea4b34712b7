#!/usr/bin/env python3
"""Verifies checkpoints of workspaced. Implements openapi/checkpoints.md with the standard library only.

    verify_checkpoints.py vectors FILE                              verify the test vectors
    verify_checkpoints.py changes VERIFIER_KEY FILE                 verify an answer of GET /v1/checkpoint/key/changes
    verify_checkpoints.py inclusion VERIFIER_KEY [CHANGES] FILE     verify an answer of GET /v1/runs/{run}/audit/inclusion
    verify_checkpoints.py log VERIFIER_KEY FILE                     verify a checkpoint file

CHANGES is a file with an answer of GET /v1/checkpoint/key/changes. The verifier key is the one that is trusted: the key of the
log when it was saved. Statements lead from it to the present one.
"""

import base64
import hashlib
import json
import sys


class VerificationError(Exception):
    pass


def require(condition, message):
    if not condition:
        raise VerificationError(message)


# Ed25519, RFC 8032, verification only.

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)


def recover_x(y, sign):
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT_OF_MINUS_ONE % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    return P - x if x & 1 != sign else x


def point(x, y):
    return (x, y, 1, x * y % P)


def add(a, b):
    m, n = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    t, z = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = n - m, z - t, z + t, n + m
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def times(scalar, base):
    total = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            total = add(total, base)
        base = add(base, base)
        scalar >>= 1
    return total


def decode(raw):
    number = int.from_bytes(raw, "little")
    y = number & ((1 << 255) - 1)
    x = recover_x(y, number >> 255)
    return None if x is None else point(x, y)


BASE_Y = 4 * pow(5, P - 2, P) % P
BASE = point(recover_x(BASE_Y, 0), BASE_Y)


def is_valid_ed25519(key, message, signature):
    if len(signature) != 64:
        return False
    a, r = decode(key), decode(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= ORDER:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % ORDER
    left, right = times(s, BASE), add(r, times(k, a))
    return (left[0] * right[2] - right[0] * left[2]) % P == 0 and (left[1] * right[2] - right[1] * left[2]) % P == 0


# Signed notes and checkpoints.


def parse_key(text):
    name, key_id, encoded = text.strip().split("+", 2)
    raw = base64.b64decode(encoded, validate=True)
    require(len(raw) == 33 and raw[0] == 1, "the key is not an Ed25519 key")
    expected_id = hashlib.sha256(name.encode() + b"\n" + raw).digest()[:4]
    require(expected_id.hex() == key_id, "the key ID does not match the key")
    return name, expected_id, raw[1:]


def open_note(key, note):
    name, key_id, public = key
    text, mark, signatures = note.rpartition("\n\n")
    require(mark and signatures.endswith("\n"), "the text is not a signed note")
    text += "\n"
    signed = False
    for line in signatures[:-1].split("\n"):
        dash, signer, encoded = line.split(" ")
        require(dash == "\u2014", "the text is not a signed note")
        raw = base64.b64decode(encoded, validate=True)
        if signer == name and raw[:4] == key_id:
            require(is_valid_ed25519(public, text.encode(), raw[4:]), "the signature is invalid")
            signed = True
    require(signed, "the note is not signed by this key")
    origin, size, root = text.split("\n")[:3]
    require(origin == name and str(int(size)) == size, "the note is not a checkpoint of this origin")
    return int(size), base64.b64decode(root, validate=True)


# Changes of the key.


def split_notes(text):
    """Splits notes that are each followed by an empty line. A note has one empty line itself."""
    parts = text.split("\n\n")
    require(parts.pop() == "" and len(parts) % 2 == 0, "the notes are incomplete")
    return [parts[at] + "\n\n" + parts[at + 1] + "\n" for at in range(0, len(parts), 2)]


def is_statement(note):
    return note.split("\n")[3].startswith("old-key ")


def open_statement(note):
    """Returns tree size, root, old and new key of a statement that both keys have signed."""
    lines = note.split("\n\n")[0].split("\n")
    require(len(lines) == 5, "the note is not a statement")
    fields = [line.split(" ") for line in lines[3:]]
    require([field[0] for field in fields] == ["old-key", "new-key"] and all(len(field) == 2 for field in fields), "the note is not a statement")
    old, new = parse_key(fields[0][1]), parse_key(fields[1][1])
    require(old[0] == new[0] and old[1] != new[1], "a statement does not name two keys of one log")
    size, root = open_note(old, note)
    open_note(new, note)
    return size, root, old, new


class KeyHistory:
    """The keys of a log: statements that lead from a trusted key to others."""

    def __init__(self, trusted, notes):
        require(len(notes) <= 256, "there are too many statements")
        self.trusted, self.changes = trusted, []
        for note in notes:
            size, root, old, new = open_statement(note)
            require(new not in [change[2] for change in self.changes], "a replaced key is in force again")
            if self.changes:
                require(old == self.changes[-1][3], "a statement is missing, or the log has forked")
                require(size > self.changes[-1][0], "a statement has no larger tree than the one before")
            self.changes.append((size, root, old, new))
        named = [key for change in self.changes for key in change[2:]]
        require(not notes or trusted in named, "no statement names the trusted key")

    def newest(self):
        return self.changes[-1][3] if self.changes else self.trusted

    def open(self, note):
        """Returns tree size and root of a checkpoint that the key in force for its size has signed."""
        size = int(note.split("\n")[1])
        later = [change for change in self.changes if size < change[0]]
        found = open_note(later[0][2] if later else self.newest(), note)
        for change in self.changes:
            require(change[0] != size or change[1] == found[1], "a checkpoint and a statement of one size have different roots")
        return found

    def vouched_from(self):
        """Returns the least tree size for which the trusted key vouches: it has signed the statement that made it the key, or it is the first."""
        return next((size for size, _, _, new in self.changes if new == self.trusted), 0)


# The tree of RFC 6962.


def leaf_hash(leaf):
    return hashlib.sha256(b"\0" + leaf).digest()


def node_hash(left, right):
    return hashlib.sha256(b"\1" + left + right).digest()


def root_of(hashes):
    if not hashes:
        return hashlib.sha256(b"").digest()
    if len(hashes) == 1:
        return hashes[0]
    half = 1
    while half * 2 < len(hashes):
        half *= 2
    return node_hash(root_of(hashes[:half]), root_of(hashes[half:]))


def check_inclusion(leaf, index, size, proof, root):
    require(index < size, "the leaf index is outside the tree")
    at, last, found = index, size - 1, leaf
    for sibling in proof:
        require(last, "the proof is too long")
        if at & 1 or at == last:
            found = node_hash(sibling, found)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            found = node_hash(found, sibling)
        at, last = at >> 1, last >> 1
    require(last == 0 and found == root, "the inclusion proof is invalid")


def check_consistency(old, new, old_root, new_root, proof):
    require(0 < old <= new, "the tree sizes are invalid")
    if old == new:
        require(not proof and old_root == new_root, "the consistency proof is invalid")
        return
    path = list(proof) if old & (old - 1) else [old_root] + list(proof)
    require(path, "the proof is too short")
    at, last = old - 1, new - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    first = second = path[0]
    for sibling in path[1:]:
        require(last, "the proof is too long")
        if at & 1 or at == last:
            first, second = node_hash(sibling, first), node_hash(sibling, second)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            second = node_hash(second, sibling)
        at, last = at >> 1, last >> 1
    require(last == 0 and first == old_root and second == new_root, "the consistency proof is invalid")


# Records and leaves.


class Digits(str):
    """A number that is no integer, as it is written. Python keeps the digits of integers by itself."""


def parse(text):
    return json.loads(text, parse_float=Digits)


def to_canonical(value):
    if isinstance(value, Digits):
        return value
    if isinstance(value, list):
        return "[" + ",".join(map(to_canonical, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(to_canonical(name) + ":" + to_canonical(value[name]) for name in sorted(value)) + "}"
    return json.dumps(value, ensure_ascii=False)


def canonical(value):
    return to_canonical(value).encode()


def check_record(record):
    unhashed = {name: value for name, value in record.items() if name != "hash"}
    require(hashlib.sha256(canonical(unhashed)).hexdigest() == record["hash"], "the hash of a record is wrong")


def check_proof(keys, proof):
    """Checks an answer of GET …/audit/inclusion."""
    require("nextSeq" not in proof, "the answer is truncated: read the records from the audit")
    before = None
    for number, record in enumerate(proof["records"]):
        check_record(record)
        require(record["runId"] == proof["leaf"]["runId"] and record["seq"] == proof["seq"] + number, "the records are not in order")
        require(before is None or record["prevHash"] == before["hash"], "a record does not contain the hash of the previous one")
        before = record
    require(proof["records"][0]["hash"] == proof["recordHash"], "the hash of the first record differs")
    leaf = proof["leaf"]
    require((before["hash"], before["seq"]) == (leaf["headHash"], leaf["headSeq"]), "the records do not reach the leaf")
    size, root = keys.open(proof["checkpoint"])
    require(size >= keys.vouched_from(), "the checkpoint is older than the trusted key: verify the consistency proof to a newer one")
    require(size == proof["treeSize"], "the size of the checkpoint differs")
    path = [bytes.fromhex(one) for one in proof["proof"]]
    check_inclusion(leaf_hash(canonical(leaf)), proof["leafIndex"], size, path, root)


def expect_refusal(what, check, *arguments):
    try:
        check(*arguments)
    except (VerificationError, ValueError, IndexError):
        return
    raise VerificationError("accepted: " + what)


def check_key_changes(changes):
    public = [parse_key(key) for key in changes["verifierKeys"]]
    notes = split_notes(changes["statements"])
    for trusted in public:
        keys = KeyHistory(trusted, notes)
        require(keys.newest() == public[-1], "the statements lead to another key")
        for one in changes["accepted"]:
            require(keys.open(one["note"])[0] == one["size"], "refused: " + one["why"])
        for one in changes["refused"]:
            expect_refusal(one["why"], keys.open, one["note"])
    for one in changes["refusedStatements"]:
        expect_refusal(one["why"], lambda: KeyHistory(parse_key(one["trusted"]), split_notes(one["statements"])))
    return len(public) * (len(changes["accepted"]) + len(changes["refused"])) + len(changes["refusedStatements"])


def check_vectors(vectors):
    key = parse_key(vectors["verifierKey"])
    for record in vectors["records"]:
        check_record(record)
    hashes = []
    for leaf in vectors["leaves"]:
        require(canonical(leaf["leaf"]).decode() == leaf["text"], "the text of a leaf differs")
        hashes.append(leaf_hash(leaf["text"].encode()))
        require(hashes[-1].hex() == leaf["hash"], "the hash of a leaf differs")
    roots = [bytes.fromhex(root) for root in vectors["roots"]]
    for size, root in enumerate(roots):
        require(root_of(hashes[:size]) == root, "a root differs")
    for checkpoint in vectors["checkpoints"]:
        found = open_note(key, checkpoint["note"])
        require(found == (checkpoint["size"], roots[checkpoint["size"]]), "the root of a checkpoint differs")
    for one in vectors["inclusion"]:
        path = [bytes.fromhex(hash) for hash in one["proof"]]
        arguments = (one["index"], one["size"], path, roots[one["size"]])
        check_inclusion(hashes[one["index"]], *arguments)
        expect_refusal("another leaf", check_inclusion, bytes(32), *arguments)
    for one in vectors["consistency"]:
        path = [bytes.fromhex(hash) for hash in one["proof"]]
        check_consistency(one["from"], one["to"], roots[one["from"]], roots[one["to"]], path)
        expect_refusal("another tree", check_consistency, one["from"], one["to"], bytes(32), roots[one["to"]], path)
    for one in vectors["refused"]:
        expect_refusal(one["why"], open_note, key, one["note"])
    for one in vectors["accepted"]:
        require(open_note(key, one["note"]) == (len(hashes), roots[-1]), "refused: " + one["why"])
    check_proof(KeyHistory(key, []), vectors["recordProof"])
    changes = check_key_changes(vectors["keyChanges"])
    return changes + len(vectors["inclusion"]) + len(vectors["consistency"]) + len(vectors["refused"]) + len(vectors["accepted"])


def check_log(key, text):
    """Checks every entry of a checkpoint file. Of the checkpoints by two keys, the first one is the statement."""
    notes = split_notes(text)
    statements = []
    for note in filter(is_statement, notes):
        if not statements or open_statement(statements[-1])[3] != open_statement(note)[3]:
            statements.append(note)
    keys = KeyHistory(key, statements)
    before, unconfirmed = 0, 0
    for note in notes:
        size, _ = keys.open(note)
        require(size > before, "the checkpoints are out of order")
        before = size
        unconfirmed += size < keys.vouched_from()
    return len(notes), len(keys.changes), unconfirmed


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def main(arguments):
    text = read(arguments[-1])
    if arguments[0] == "vectors":
        print("good:", check_vectors(parse(text)), "cases")
        return
    key = parse_key(arguments[1])
    if arguments[0] == "changes":
        keys = KeyHistory(key, split_notes(text))
        name, key_id, raw = keys.newest()
        print("good:", len(keys.changes), "changes, the key is now %s+%s+%s" % (name, key_id.hex(), base64.b64encode(b"\1" + raw).decode()))
    elif arguments[0] == "inclusion":
        changes = split_notes(read(arguments[2])) if len(arguments) == 4 else []
        check_proof(KeyHistory(key, changes), parse(text))
        print("good: the record is included")
    else:
        checkpoints, changes, unconfirmed = check_log(key, text)
        print("good: %d checkpoints, %d changes of the key" % (checkpoints, changes))
        if unconfirmed:
            print("%d checkpoints are older than the trusted key, which does not vouch for them without consistency proofs" % unconfirmed)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (VerificationError, ValueError, KeyError, IndexError) as error:
        sys.exit("BAD: %s" % error)
