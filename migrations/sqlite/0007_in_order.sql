-- Why: in a table without row numbers a row's key is its whole row, blob and all: each look for a place in its tree reads whole
-- files and diffs, and few rows fit on a page. What a record left, and its diff, have numbers again, which are made of the
-- record's position: they are put behind the last ones without a look, and no index by record is needed beside them.

-- Contents have no index by run any more: a deleted run tells up to which record they are gone.
ALTER TABLE run ADD COLUMN purged_seq INTEGER NOT NULL DEFAULT 0;
UPDATE run SET purged_seq = (SELECT head_seq FROM run_head h WHERE h.run_no = run.run_no) WHERE state = 'deleted'
  AND NOT EXISTS (SELECT 1 FROM content c WHERE c.run_no = run.run_no)
  AND NOT EXISTS (SELECT 1 FROM step s WHERE s.run_no = run.run_no);

-- `content_no` is the record's position times 1,048,576, and the place among what the record left.
-- No table here refers to `run`: a row is written in the transaction that has read the run's head, and no run ever goes.
CREATE TABLE content_in_order (
  content_no INTEGER PRIMARY KEY,
  run_no INTEGER NOT NULL,
  sha256 BLOB NOT NULL,
  bytes BLOB NOT NULL
) STRICT;
INSERT INTO content_in_order (content_no, run_no, sha256, bytes)
  SELECT (r.position << 20) + (SELECT count(*) FROM content b WHERE b.run_no = c.run_no AND b.seq = c.seq AND b.sha256 < c.sha256),
    c.run_no, c.sha256, c.bytes
  FROM audit_record r CROSS JOIN content c ON c.run_no = r.run_no AND c.seq = r.seq;
DROP TABLE content;
ALTER TABLE content_in_order RENAME TO content;

CREATE TABLE artifact_in_order (
  position INTEGER PRIMARY KEY,
  artifact_id TEXT NOT NULL,
  run_no INTEGER NOT NULL,
  diff BLOB NOT NULL
) STRICT;
INSERT INTO artifact_in_order (position, artifact_id, run_no, diff)
  SELECT r.position, a.artifact_id, a.run_no, a.diff
  FROM artifact a CROSS JOIN audit_record r ON r.run_no = a.run_no AND r.seq = a.seq;
DROP TABLE artifact;
ALTER TABLE artifact_in_order RENAME TO artifact;
CREATE UNIQUE INDEX artifact_by_id ON artifact (artifact_id, run_no);

-- What a step leaves is found by the record's position.
ALTER TABLE step ADD COLUMN position INTEGER NOT NULL DEFAULT 0;
UPDATE step SET position =
  coalesce((SELECT r.position FROM audit_record r WHERE r.run_no = step.run_no AND r.seq = step.seq), 0);

-- As before: they only grow, contents until their run is deleted.
CREATE TRIGGER artifact_no_update BEFORE UPDATE ON artifact BEGIN SELECT RAISE(ABORT, 'artifact only grows'); END;
CREATE TRIGGER artifact_no_delete BEFORE DELETE ON artifact BEGIN SELECT RAISE(ABORT, 'artifact only grows'); END;
CREATE TRIGGER content_no_update BEFORE UPDATE ON content BEGIN SELECT RAISE(ABORT, 'content only grows'); END;
CREATE TRIGGER content_no_delete BEFORE DELETE ON content
  WHEN (SELECT state FROM run WHERE run_no = OLD.run_no) IS NOT 'deleted'
  BEGIN SELECT RAISE(ABORT, 'content only grows until its run is deleted'); END;
