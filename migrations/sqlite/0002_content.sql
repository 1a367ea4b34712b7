-- Why: what a mutation leaves in a file is kept for as long as its run, so that the run can be looked at as it was at any
-- record. A step no longer holds it: what is forgotten is a small row, and no pages are freed behind every change.

-- Neither table refers to `run`: a row is written in the transaction that has read the run's head, and no run ever goes.
CREATE TABLE content (
  content_no INTEGER PRIMARY KEY,
  run_no INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  sha256 BLOB NOT NULL,
  bytes BLOB NOT NULL
) STRICT;
CREATE INDEX content_by_record ON content (run_no, seq);
INSERT INTO content (run_no, seq, sha256, bytes)
  SELECT run_no, seq, after_sha256, content FROM step
  WHERE step_no IN (SELECT min(step_no) FROM step WHERE content IS NOT NULL GROUP BY run_no, seq, after_sha256)
  ORDER BY step_no;

CREATE TABLE small_step (
  run_no INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  place INTEGER NOT NULL,
  path TEXT NOT NULL,
  before_sha256 BLOB,
  after_sha256 BLOB,
  mode INTEGER,
  staged TEXT,
  PRIMARY KEY (run_no, seq, place)
) STRICT, WITHOUT ROWID;
INSERT INTO small_step (run_no, seq, place, path, before_sha256, after_sha256, mode, staged)
  SELECT run_no, seq, step_no, path, before_sha256, after_sha256, mode, staged FROM step;
DROP TABLE step;
ALTER TABLE small_step RENAME TO step;

-- It only grows, until its run is deleted.
CREATE TRIGGER content_no_update BEFORE UPDATE ON content BEGIN SELECT RAISE(ABORT, 'content only grows'); END;
CREATE TRIGGER content_no_delete BEFORE DELETE ON content
  WHEN (SELECT state FROM run WHERE run_no = OLD.run_no) IS NOT 'deleted'
  BEGIN SELECT RAISE(ABORT, 'content only grows until its run is deleted'); END;
