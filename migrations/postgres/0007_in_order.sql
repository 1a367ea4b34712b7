-- Why: contents and diffs were indexed by run, or by ID: with many runs each commit changed a page for each of them. They are
-- numbered now as the records are, so that new ones are put behind the last ones.

-- Contents have no index by run any more: a deleted run tells up to which record they are gone.
ALTER TABLE run ADD COLUMN purged_seq BIGINT NOT NULL DEFAULT 0;
UPDATE run SET purged_seq = (SELECT head_seq FROM run_head h WHERE h.run_no = run.run_no) WHERE state = 'deleted'
  AND NOT EXISTS (SELECT 1 FROM content c WHERE c.run_no = run.run_no)
  AND NOT EXISTS (SELECT 1 FROM step s WHERE s.run_no = run.run_no);

-- `content_no` is the record's position times 1,048,576, and the place among what the record left.
-- No table here refers to `run`: a row is written in the transaction that has read the run's head, and no run ever goes.
CREATE TABLE content_in_order (
  content_no BIGINT PRIMARY KEY,
  run_no BIGINT NOT NULL,
  sha256 BYTEA NOT NULL,
  bytes BYTEA NOT NULL
);
INSERT INTO content_in_order (content_no, run_no, sha256, bytes)
  SELECT (r.position << 20) + (SELECT count(*) FROM content b WHERE b.run_no = c.run_no AND b.seq = c.seq AND b.sha256 < c.sha256),
    c.run_no, c.sha256, c.bytes
  FROM content c JOIN audit_record r ON r.run_no = c.run_no AND r.seq = c.seq;
DROP TABLE content;
ALTER TABLE content_in_order RENAME TO content;

CREATE TABLE artifact_in_order (
  position BIGINT PRIMARY KEY,
  artifact_id TEXT NOT NULL,
  run_no BIGINT NOT NULL,
  diff BYTEA NOT NULL
);
INSERT INTO artifact_in_order (position, artifact_id, run_no, diff)
  SELECT r.position, a.artifact_id, a.run_no, a.diff
  FROM artifact a JOIN audit_record r ON r.run_no = a.run_no AND r.seq = a.seq;
DROP TABLE artifact;
ALTER TABLE artifact_in_order RENAME TO artifact;
CREATE UNIQUE INDEX artifact_by_id ON artifact (artifact_id, run_no);

-- What a step leaves is found by the record's position.
ALTER TABLE step ADD COLUMN position BIGINT NOT NULL DEFAULT 0;
UPDATE step SET position =
  coalesce((SELECT r.position FROM audit_record r WHERE r.run_no = step.run_no AND r.seq = step.seq), 0);

-- As before: they only grow, contents until their run is deleted.
CREATE TRIGGER artifact_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON artifact FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER content_no_change BEFORE UPDATE OR TRUNCATE ON content FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER content_no_delete AFTER DELETE ON content REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_early_purge();
