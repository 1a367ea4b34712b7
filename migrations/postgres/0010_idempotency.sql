-- Why: a creation that its caller repeats under the same Idempotency-Key returns the first answer. It is kept for a day, without
-- the token's secret, which is derived from the key again.

CREATE TABLE keyed_answer (
  operator TEXT NOT NULL,
  key_sha256 BYTEA NOT NULL,
  request_sha256 BYTEA NOT NULL,
  answer TEXT NOT NULL,
  expires_at TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (operator, key_sha256)
);
CREATE INDEX keyed_answer_expires_at ON keyed_answer (expires_at);
