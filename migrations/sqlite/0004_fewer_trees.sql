-- Why: a commit writes a page of every tree that it touches. What a record left, and its diff, lie under their own keys now,
-- not under a number of their own with an index beside it: two trees less for every change.

CREATE TABLE content_by_key (
  run_no INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  sha256 BLOB NOT NULL,
  bytes BLOB NOT NULL,
  PRIMARY KEY (run_no, seq, sha256)
) STRICT, WITHOUT ROWID;
INSERT INTO content_by_key (run_no, seq, sha256, bytes)
  SELECT run_no, seq, sha256, bytes FROM content ORDER BY run_no, seq, sha256;
DROP TABLE content;
ALTER TABLE content_by_key RENAME TO content;

-- The ID first: IDs grow with time, so that new diffs of all runs share the last page.
CREATE TABLE artifact_by_key (
  artifact_id TEXT NOT NULL,
  run_no INTEGER NOT NULL REFERENCES run,
  seq INTEGER NOT NULL,
  diff BLOB NOT NULL,
  PRIMARY KEY (artifact_id, run_no)
) STRICT, WITHOUT ROWID;
INSERT INTO artifact_by_key (artifact_id, run_no, seq, diff)
  SELECT artifact_id, run_no, seq, diff FROM artifact ORDER BY artifact_id, run_no;
DROP TABLE artifact;
ALTER TABLE artifact_by_key RENAME TO artifact;

-- As before: they only grow, contents until their run is deleted.
CREATE TRIGGER artifact_no_update BEFORE UPDATE ON artifact BEGIN SELECT RAISE(ABORT, 'artifact only grows'); END;
CREATE TRIGGER artifact_no_delete BEFORE DELETE ON artifact BEGIN SELECT RAISE(ABORT, 'artifact only grows'); END;
CREATE TRIGGER content_no_update BEFORE UPDATE ON content BEGIN SELECT RAISE(ABORT, 'content only grows'); END;
CREATE TRIGGER content_no_delete BEFORE DELETE ON content
  WHEN (SELECT state FROM run WHERE run_no = OLD.run_no) IS NOT 'deleted'
  BEGIN SELECT RAISE(ABORT, 'content only grows until its run is deleted'); END;
