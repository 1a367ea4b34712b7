-- Why: all that the service remembers: runs, tokens, operators, the audit and what hangs on a record, approvals, checkpoints,
-- webhooks, nodes, settings.

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
  mount_paths TEXT NOT NULL,
  -- Contents have no index by run: a deleted run tells up to which record they are gone.
  purged_seq INTEGER NOT NULL DEFAULT 0,
  -- They can be replaced. The rest of `body`, with the run's policy, never changes.
  labels TEXT NOT NULL DEFAULT '{}',
  archived_at TEXT,
  archive_uri TEXT,
  -- The last archived record. It never changes.
  archived_seq INTEGER,
  -- What lists are ordered and searched by: the URL of the source, the repository (by the labels, else that URL), the agent (by the
  -- labels), and the summary of the first prompt as JSON, which escapes NUL.
  source_url TEXT NOT NULL DEFAULT '',
  repository TEXT NOT NULL DEFAULT '',
  agent TEXT NOT NULL DEFAULT '',
  prompt TEXT,
  -- The run that this one is a fork of, by its ID: its row may be loaded after that of the fork. And its record at which it was forked.
  parent_id TEXT,
  forked_at INTEGER,
  -- The record of the fork up to which its changes are merged into its parent.
  merged_seq INTEGER
) STRICT;
CREATE INDEX run_by_state ON run (state, run_no);
CREATE INDEX run_live ON run (run_no, run_id) WHERE state <> 'deleted';
CREATE INDEX run_expiring ON run (expires_at) WHERE expires_at IS NOT NULL AND closed_at IS NULL;
CREATE INDEX run_closed ON run (closed_at, run_no) WHERE state = 'closed';
CREATE INDEX run_by_repository ON run (repository, run_no);
CREATE INDEX run_by_agent ON run (agent, run_no);
CREATE INDEX run_by_parent ON run (parent_id, run_no) WHERE parent_id IS NOT NULL;

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
  bytes INTEGER NOT NULL,
  -- What the run's tree holds; NULL where nobody has counted yet.
  disk_bytes INTEGER,
  disk_files INTEGER,
  events INTEGER NOT NULL DEFAULT 0,
  event_bytes INTEGER NOT NULL DEFAULT 0,
  -- The node that owns the run. The epoch grows whenever the owner changes, and is 0 for a run that no node has owned: each commit
  -- names the epoch under which its node owns the run, so that a node that has lost a run cannot commit to it.
  owner_node TEXT,
  owner_incarnation INTEGER,
  epoch INTEGER NOT NULL DEFAULT 0,
  -- No node has opened the files of the run under the epochs after `files_epoch` up to `unopened_epoch`: a node that took the run but
  -- could not make its files does not make those of another node outdated. If the latter is not the epoch of now, it says nothing.
  files_epoch INTEGER,
  unopened_epoch INTEGER,
  -- Bytes of the rows of its calls, and of the objects that it refers to.
  history_bytes INTEGER NOT NULL DEFAULT 0,
  -- The quotas of the run's policy, which never changes; NULL stands for the defaults.
  max_history_bytes INTEGER,
  max_records INTEGER,
  -- Records that are not by the agent, and the mutations among them.
  people_records INTEGER NOT NULL DEFAULT 0,
  people_mutations INTEGER NOT NULL DEFAULT 0,
  -- What the run stores itself: its files beside those of its base.
  own_bytes INTEGER NOT NULL DEFAULT 0,
  own_files INTEGER NOT NULL DEFAULT 0
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

-- Operators have names, so that the audit and approvals show who decided.
CREATE TABLE operator_token (
  operator_no INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  secret_sha256 BLOB NOT NULL UNIQUE,
  scopes TEXT NOT NULL,
  created_at TEXT NOT NULL,
  created_by TEXT NOT NULL,
  expires_at TEXT,
  revoked_at TEXT,
  -- When the operator was revoked. A token that another one replaced has a `revoked_at` as well.
  withdrawn_at TEXT
) STRICT;
-- Names that differ in letter case only are the same name.
CREATE UNIQUE INDEX operator_token_by_name ON operator_token (lower(name)) WHERE revoked_at IS NULL;
CREATE INDEX operator_token_withdrawn ON operator_token (lower(name)) WHERE withdrawn_at IS NOT NULL;

-- The first answers to creations under an Idempotency-Key. They are kept for a day, without the token's secret, which is derived from
-- the key again.
CREATE TABLE keyed_answer (
  operator TEXT NOT NULL,
  key_sha256 BLOB NOT NULL,
  request_sha256 BLOB NOT NULL,
  answer TEXT NOT NULL,
  expires_at TEXT NOT NULL,
  PRIMARY KEY (operator, key_sha256)
) STRICT, WITHOUT ROWID;
CREATE INDEX keyed_answer_expires_at ON keyed_answer (expires_at);

-- Columns called `packed`, and those beside a size before compression, are compressed; that size is NULL for a value that is stored as
-- it is. A packed `body` is empty.
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
  -- What counts of records need: whose call it is, whether something was denied, and why it was not simply done.
  made_by TEXT NOT NULL,
  denied INTEGER NOT NULL,
  reason TEXT,
  input_sha256 BLOB NOT NULL,
  body TEXT NOT NULL,
  body_bytes INTEGER,
  packed BLOB,
  UNIQUE (run_no, seq)
) STRICT;
-- The ID first: the server's own grow with time, so that new entries of all runs share the last page.
CREATE INDEX audit_record_by_call ON audit_record (tool_call_id, run_no, seq);
CREATE INDEX audit_record_by_tool ON audit_record (tool);
CREATE INDEX audit_record_by_decision ON audit_record (decision) WHERE decision <> 'ALLOW';
CREATE INDEX audit_record_by_outcome ON audit_record (outcome) WHERE outcome <> 'ok';
CREATE INDEX audit_record_change ON audit_record (run_no, seq) WHERE mutates AND outcome = 'ok';
-- What was refused in one run is a dashboard's first question. Calls that went well do not touch this index.
CREATE INDEX audit_record_refused ON audit_record (run_no, seq) WHERE decision <> 'ALLOW' OR outcome <> 'ok';

-- In parts of 65,536 records, so that new ones go to few pages.
CREATE TABLE record_path (
  position INTEGER NOT NULL,
  path TEXT NOT NULL,
  run_no INTEGER NOT NULL,
  PRIMARY KEY (position, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX record_path_by_part ON record_path (position >> 16, path, position, run_no);

-- The times of each 4,096 positions that are complete, so that a time filter need not look at the others.
CREATE TABLE audit_zone (
  zone INTEGER PRIMARY KEY,
  min_timestamp TEXT NOT NULL,
  max_timestamp TEXT NOT NULL
) STRICT;

CREATE TABLE call_reply (
  position INTEGER PRIMARY KEY,
  status INTEGER NOT NULL,
  body TEXT NOT NULL,
  body_bytes INTEGER,
  packed BLOB
) STRICT;

-- What a mutation leaves in a file is kept for as long as its run, so that the run can be looked at as it was at any record.
-- `content_no` is the record's position times 1,048,576, and the place among what the record left: new rows are appended at the end.
-- Neither this table nor those below refer to `run`: a row is written in the transaction that has read the run's head.
CREATE TABLE content (
  content_no INTEGER PRIMARY KEY,
  run_no INTEGER NOT NULL,
  sha256 BLOB NOT NULL,
  bytes BLOB NOT NULL,
  raw_bytes INTEGER,
  -- Whether the content refers to the diff of its record.
  needs_diff INTEGER
) STRICT;

-- What the newest record that wrote a path has left there: a run is opened from these rows, and not from its history. `sha256` and `mode`
-- are NULL where it left nothing. The path is hashed as well: an index of PostgreSQL holds no long one.
CREATE TABLE newest_version (
  run_no INTEGER NOT NULL,
  path_sha256 BLOB NOT NULL,
  path TEXT NOT NULL,
  seq INTEGER NOT NULL,
  kind TEXT NOT NULL,
  sha256 BLOB,
  mode INTEGER,
  PRIMARY KEY (run_no, path_sha256)
) STRICT, WITHOUT ROWID;

CREATE TABLE artifact (
  position INTEGER PRIMARY KEY,
  artifact_id TEXT NOT NULL,
  run_no INTEGER NOT NULL,
  diff BLOB NOT NULL,
  diff_bytes INTEGER
) STRICT;
CREATE UNIQUE INDEX artifact_by_id ON artifact (artifact_id, run_no);

-- Larger payloads of events, by their digest. `position` is that of the record of the upload.
CREATE TABLE upload (
  position INTEGER PRIMARY KEY,
  run_no INTEGER NOT NULL,
  sha256 BLOB NOT NULL,
  bytes BLOB NOT NULL,
  raw_bytes INTEGER
) STRICT;
CREATE UNIQUE INDEX upload_by_digest ON upload (run_no, sha256);

-- The journal: changes that are recorded, and may not be in the tree yet. What a step leaves is found by the record's position.
CREATE TABLE step (
  run_no INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  place INTEGER NOT NULL,
  path TEXT NOT NULL,
  before_sha256 BLOB,
  after_sha256 BLOB,
  mode INTEGER,
  staged TEXT,
  position INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (run_no, seq, place)
) STRICT, WITHOUT ROWID;

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

-- The operators who have approved a call, and for whom. Each counts once; an operator that was revoked and made anew votes anew.
CREATE TABLE approval_vote (
  vote_no INTEGER PRIMARY KEY,
  approval_id TEXT NOT NULL,
  voter TEXT NOT NULL,
  on_behalf_of TEXT,
  voted_at TEXT
) STRICT;
CREATE UNIQUE INDEX approval_vote_by_approval ON approval_vote (approval_id, lower(voter), coalesce(voted_at, ''));

-- Where a run's chain stood when a checkpoint was made; the leaves of one tree, from 0.
CREATE TABLE checkpoint_leaf (
  leaf_no INTEGER PRIMARY KEY,
  run_no INTEGER NOT NULL REFERENCES run,
  head_seq INTEGER NOT NULL,
  head_hash BLOB NOT NULL
) STRICT;
CREATE INDEX checkpoint_leaf_by_run ON checkpoint_leaf (run_no, head_seq);

-- The tree's complete subtrees, leaves too, in the order in which they were completed: proofs are made of them.
CREATE TABLE checkpoint_node (
  place INTEGER PRIMARY KEY,
  hash BLOB NOT NULL
) STRICT;

-- What was signed over the first `size` leaves, and up to which record it was looked for moved heads.
CREATE TABLE checkpoint (
  size INTEGER PRIMARY KEY,
  position INTEGER NOT NULL,
  note TEXT NOT NULL
) STRICT;

-- The configured webhooks. Refused calls up to `position` have their deliveries.
CREATE TABLE webhook (
  name TEXT PRIMARY KEY,
  position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The events that the configured webhooks receive.
CREATE TABLE webhook_subscription (
  event_type TEXT NOT NULL,
  webhook TEXT NOT NULL,
  PRIMARY KEY (event_type, webhook)
) STRICT, WITHOUT ROWID;

-- A delivery is stored in the commit of its event, so that a kill loses none.
CREATE TABLE webhook_delivery (
  delivery_no INTEGER PRIMARY KEY,
  webhook TEXT NOT NULL,
  message_id TEXT NOT NULL,
  event_type TEXT NOT NULL,
  run_id TEXT,
  body TEXT NOT NULL,
  state TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  last_status INTEGER,
  last_error TEXT,
  next_attempt_at TEXT NOT NULL,
  created_at TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX webhook_delivery_by_message ON webhook_delivery (webhook, message_id);
CREATE INDEX webhook_delivery_by_webhook ON webhook_delivery (webhook, delivery_no);
-- What is due is ordered by the kind of event and by turns of the runs, which an index without them would read from the rows.
CREATE INDEX webhook_delivery_due ON webhook_delivery (webhook, next_attempt_at, event_type, run_id, delivery_no) WHERE state = 'pending';

-- One row for each node that has ever joined. Times are milliseconds since 1970 by the clock of the database.
CREATE TABLE node (
  node_id TEXT PRIMARY KEY,
  incarnation INTEGER NOT NULL,
  url TEXT NOT NULL,
  started_at_ms INTEGER NOT NULL,
  expires_at_ms INTEGER NOT NULL,
  -- A heartbeat that expires later than its lease allows was sent before the clock of the database was set back, and says nothing.
  lease_ms INTEGER NOT NULL DEFAULT 10000
) STRICT, WITHOUT ROWID;

-- Work that one node does for all. Rows are made when a role is taken first.
CREATE TABLE node_role (
  role TEXT PRIMARY KEY,
  owner_node TEXT,
  owner_incarnation INTEGER,
  epoch INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Objects in the object store are deleted when no run refers to them any more. `object` is the name of a content, or the folder of a
-- base's index. The contents that the index names stay as long as it does.
CREATE TABLE object_reference (
  object TEXT NOT NULL,
  run_no INTEGER NOT NULL,
  -- What `history_bytes` counts of the object.
  size_bytes INTEGER NOT NULL DEFAULT 0,
  -- Whether the reference ends once no path of the run has the object: it is too large to be restored.
  is_while_present INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (object, run_no)
) STRICT, WITHOUT ROWID;
CREATE INDEX object_reference_by_run ON object_reference (run_no);

-- The paths of a run that have an object which is too large to be restored. The path is hashed: an index of PostgreSQL holds no long one.
CREATE TABLE object_path (
  run_no INTEGER NOT NULL,
  path_sha256 BLOB NOT NULL,
  object TEXT NOT NULL,
  PRIMARY KEY (run_no, path_sha256)
) STRICT, WITHOUT ROWID;
CREATE INDEX object_path_by_object ON object_path (object, run_no);

-- Objects that were reserved for a commit, or seen in the store. Times are milliseconds since 1970 by the clock of the database.
CREATE TABLE stored_object (
  object TEXT PRIMARY KEY,
  -- Names the reservation that made the row. A row that was deleted and made again has another one.
  reservation INTEGER NOT NULL,
  used_at_ms INTEGER NOT NULL,
  -- The claim under which the object is being deleted.
  claim TEXT,
  claimed_at_ms INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE setting (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The audit only grows, until its run is archived. None of the triggers is before INSERT, which would keep REPLACE from taking rows
-- away: each costs a tenth of a call, and who goes past the service with REPLACE goes past a trigger as well. The chain tells.
CREATE TRIGGER audit_record_no_update BEFORE UPDATE ON audit_record BEGIN SELECT RAISE(ABORT, 'audit_record only grows'); END;
CREATE TRIGGER audit_record_no_delete BEFORE DELETE ON audit_record
  WHEN NOT EXISTS (SELECT 1 FROM run WHERE run_no = OLD.run_no AND archived_seq >= OLD.seq)
  BEGIN SELECT RAISE(ABORT, 'audit_record only grows until its run is archived'); END;
CREATE TRIGGER call_reply_no_update BEFORE UPDATE ON call_reply BEGIN SELECT RAISE(ABORT, 'call_reply only grows'); END;
CREATE TRIGGER call_reply_no_delete BEFORE DELETE ON call_reply
  WHEN NOT EXISTS (SELECT 1 FROM audit_record a JOIN run ON run.run_no = a.run_no
    WHERE a.position = OLD.position AND run.archived_seq >= a.seq)
  BEGIN SELECT RAISE(ABORT, 'call_reply only grows until its run is archived'); END;
CREATE TRIGGER record_path_no_update BEFORE UPDATE ON record_path BEGIN SELECT RAISE(ABORT, 'record_path only grows'); END;
CREATE TRIGGER record_path_no_delete BEFORE DELETE ON record_path
  WHEN (SELECT archived_seq FROM run WHERE run_no = OLD.run_no) IS NULL
  BEGIN SELECT RAISE(ABORT, 'record_path only grows until its run is archived'); END;
CREATE TRIGGER artifact_no_update BEFORE UPDATE ON artifact BEGIN SELECT RAISE(ABORT, 'artifact only grows'); END;
CREATE TRIGGER artifact_no_delete BEFORE DELETE ON artifact
  WHEN (SELECT archived_seq FROM run WHERE run_no = OLD.run_no) IS NULL
  BEGIN SELECT RAISE(ABORT, 'artifact only grows until its run is archived'); END;
CREATE TRIGGER upload_no_update BEFORE UPDATE ON upload BEGIN SELECT RAISE(ABORT, 'upload only grows'); END;
CREATE TRIGGER upload_no_delete BEFORE DELETE ON upload
  WHEN (SELECT archived_seq FROM run WHERE run_no = OLD.run_no) IS NULL
  BEGIN SELECT RAISE(ABORT, 'upload only grows until its run is archived'); END;
-- Contents are kept until their run is deleted.
CREATE TRIGGER content_no_update BEFORE UPDATE ON content BEGIN SELECT RAISE(ABORT, 'content only grows'); END;
CREATE TRIGGER content_no_delete BEFORE DELETE ON content
  WHEN (SELECT state FROM run WHERE run_no = OLD.run_no) IS NOT 'deleted'
  BEGIN SELECT RAISE(ABORT, 'content only grows until its run is deleted'); END;
-- Of checkpoints, nothing goes.
CREATE TRIGGER checkpoint_leaf_no_update BEFORE UPDATE ON checkpoint_leaf BEGIN SELECT RAISE(ABORT, 'checkpoint_leaf only grows'); END;
CREATE TRIGGER checkpoint_leaf_no_delete BEFORE DELETE ON checkpoint_leaf BEGIN SELECT RAISE(ABORT, 'checkpoint_leaf only grows'); END;
CREATE TRIGGER checkpoint_node_no_update BEFORE UPDATE ON checkpoint_node BEGIN SELECT RAISE(ABORT, 'checkpoint_node only grows'); END;
CREATE TRIGGER checkpoint_node_no_delete BEFORE DELETE ON checkpoint_node BEGIN SELECT RAISE(ABORT, 'checkpoint_node only grows'); END;
CREATE TRIGGER checkpoint_no_update BEFORE UPDATE ON checkpoint BEGIN SELECT RAISE(ABORT, 'checkpoint only grows'); END;
CREATE TRIGGER checkpoint_no_delete BEFORE DELETE ON checkpoint BEGIN SELECT RAISE(ABORT, 'checkpoint only grows'); END;
-- No run goes, and one that is deleted or archived stays so.
CREATE TRIGGER run_no_delete BEFORE DELETE ON run BEGIN SELECT RAISE(ABORT, 'run only grows'); END;
CREATE TRIGGER run_head_no_delete BEFORE DELETE ON run_head BEGIN SELECT RAISE(ABORT, 'run_head only grows'); END;
CREATE TRIGGER run_stays_deleted BEFORE UPDATE OF state ON run
  WHEN OLD.state = 'deleted' AND NEW.state <> 'deleted'
  BEGIN SELECT RAISE(ABORT, 'a run that is deleted stays so'); END;
CREATE TRIGGER run_stays_archived BEFORE UPDATE OF archived_seq ON run
  WHEN OLD.archived_seq IS NOT NULL AND NEW.archived_seq IS NOT OLD.archived_seq
  BEGIN SELECT RAISE(ABORT, 'a run that is archived stays so'); END;
