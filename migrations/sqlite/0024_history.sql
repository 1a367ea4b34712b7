-- Why: what a run adds to the ledger and to the object store is bounded, so it is counted with the head, which every call writes
-- anyway. And an object is deleted only under a claim that no commit and no upload can pass, of this process or another one.

-- Bytes of the rows of its calls, and of the objects that it refers to. Calls before this migration are not counted.
ALTER TABLE run_head ADD COLUMN history_bytes INTEGER NOT NULL DEFAULT 0;
-- The quotas of the run's policy, which never changes; NULL stands for the defaults.
ALTER TABLE run_head ADD COLUMN max_history_bytes INTEGER;
ALTER TABLE run_head ADD COLUMN max_records INTEGER;

-- What history_bytes counts of the object.
ALTER TABLE object_reference ADD COLUMN size_bytes INTEGER NOT NULL DEFAULT 0;
-- Whether the reference ends once no path of the run has the object: it is too large to be restored.
ALTER TABLE object_reference ADD COLUMN is_while_present INTEGER NOT NULL DEFAULT 0;

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
