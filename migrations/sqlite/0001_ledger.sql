-- Why: all that the first version remembers: runs, tokens, the audit and what hangs on a record, approvals, settings.

CREATE TABLE run (
  run_no INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL UNIQUE,
  state TEXT NOT NULL,
  created_at TEXT NOT NULL,
  closed_at TEXT,
  expires_at TEXT,
  base_commit TEXT,
  needs_repair INTEGER NOT NULL,
  body TEXT NOT NULL,
  import_report TEXT NOT NULL,
  mount_paths TEXT NOT NULL
) STRICT;
CREATE INDEX run_by_state ON run (state, run_no);
CREATE INDEX run_live ON run (run_no, run_id) WHERE state <> 'deleted';
CREATE INDEX run_expiring ON run (expires_at) WHERE expires_at IS NOT NULL AND closed_at IS NULL;

-- What every call changes, apart from what it does not: a run's policy is long, and a row is written as a whole.
CREATE TABLE run_head (
  run_no INTEGER PRIMARY KEY REFERENCES run,
  head_seq INTEGER NOT NULL,
  head_hash BLOB NOT NULL,
  mutations INTEGER NOT NULL,
  denied INTEGER NOT NULL,
  pending_approvals INTEGER NOT NULL,
  files_touched INTEGER NOT NULL,
  insertions INTEGER NOT NULL,
  deletions INTEGER NOT NULL,
  files_deleted INTEGER NOT NULL,
  bytes INTEGER NOT NULL
) STRICT;

CREATE TABLE token (
  secret_sha256 BLOB PRIMARY KEY,
  run_no INTEGER NOT NULL REFERENCES run,
  token_id TEXT NOT NULL,
  permissions TEXT NOT NULL,
  expires_at TEXT,
  revoked INTEGER NOT NULL,
  UNIQUE (run_no, token_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit_record (
  position INTEGER PRIMARY KEY,
  run_no INTEGER NOT NULL REFERENCES run,
  seq INTEGER NOT NULL,
  tool_call_id TEXT NOT NULL,
  tool TEXT NOT NULL,
  timestamp TEXT NOT NULL,
  decision TEXT NOT NULL,
  outcome TEXT NOT NULL,
  mutates INTEGER NOT NULL,
  input_sha256 BLOB NOT NULL,
  body TEXT NOT NULL,
  UNIQUE (run_no, seq)
) STRICT;
-- The ID first: the server's own grow with time, so that new entries of all runs share the last page.
CREATE INDEX audit_record_by_call ON audit_record (tool_call_id, run_no, seq);
CREATE INDEX audit_record_by_tool ON audit_record (tool);
CREATE INDEX audit_record_by_decision ON audit_record (decision) WHERE decision <> 'ALLOW';
CREATE INDEX audit_record_by_outcome ON audit_record (outcome) WHERE outcome <> 'ok';
CREATE INDEX audit_record_change ON audit_record (run_no, seq) WHERE mutates AND outcome = 'ok';

CREATE TABLE record_path (
  position INTEGER NOT NULL,
  path TEXT NOT NULL,
  run_no INTEGER NOT NULL,
  PRIMARY KEY (position, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX record_path_by_path ON record_path (path, position, run_no);

-- The times of each 4,096 positions that are complete, so that a time filter need not look at the others.
CREATE TABLE audit_zone (
  zone INTEGER PRIMARY KEY,
  min_timestamp TEXT NOT NULL,
  max_timestamp TEXT NOT NULL
) STRICT;

CREATE TABLE call_reply (
  position INTEGER PRIMARY KEY,
  status INTEGER NOT NULL,
  body TEXT NOT NULL
) STRICT;

CREATE TABLE artifact (
  artifact_no INTEGER PRIMARY KEY,
  artifact_id TEXT NOT NULL,
  run_no INTEGER NOT NULL REFERENCES run,
  seq INTEGER NOT NULL,
  diff BLOB NOT NULL,
  UNIQUE (artifact_id, run_no)
) STRICT;

CREATE TABLE step (
  step_no INTEGER PRIMARY KEY,
  run_no INTEGER NOT NULL REFERENCES run,
  seq INTEGER NOT NULL,
  path TEXT NOT NULL,
  before_sha256 BLOB,
  after_sha256 BLOB,
  mode INTEGER,
  staged TEXT,
  content BLOB
) STRICT;
CREATE INDEX step_by_record ON step (run_no, seq);

CREATE TABLE approval (
  approval_no INTEGER PRIMARY KEY,
  approval_id TEXT NOT NULL UNIQUE,
  run_no INTEGER NOT NULL REFERENCES run,
  state TEXT NOT NULL,
  expires_at TEXT NOT NULL,
  body TEXT NOT NULL,
  input TEXT NOT NULL,
  decision TEXT
) STRICT;
CREATE INDEX approval_by_state ON approval (state, approval_no);
CREATE INDEX approval_by_run ON approval (run_no, approval_no);
CREATE INDEX approval_pending ON approval (expires_at) WHERE state = 'pending';

CREATE TABLE setting (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The audit only grows.
CREATE TRIGGER audit_record_no_update BEFORE UPDATE ON audit_record BEGIN SELECT RAISE(ABORT, 'audit_record only grows'); END;
CREATE TRIGGER audit_record_no_delete BEFORE DELETE ON audit_record BEGIN SELECT RAISE(ABORT, 'audit_record only grows'); END;
CREATE TRIGGER record_path_no_update BEFORE UPDATE ON record_path BEGIN SELECT RAISE(ABORT, 'record_path only grows'); END;
CREATE TRIGGER record_path_no_delete BEFORE DELETE ON record_path BEGIN SELECT RAISE(ABORT, 'record_path only grows'); END;
CREATE TRIGGER call_reply_no_update BEFORE UPDATE ON call_reply BEGIN SELECT RAISE(ABORT, 'call_reply only grows'); END;
CREATE TRIGGER call_reply_no_delete BEFORE DELETE ON call_reply BEGIN SELECT RAISE(ABORT, 'call_reply only grows'); END;
CREATE TRIGGER artifact_no_update BEFORE UPDATE ON artifact BEGIN SELECT RAISE(ABORT, 'artifact only grows'); END;
CREATE TRIGGER artifact_no_delete BEFORE DELETE ON artifact BEGIN SELECT RAISE(ABORT, 'artifact only grows'); END;
