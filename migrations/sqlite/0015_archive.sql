-- Why: a closed run can be moved to an archive. Its row, its first record after the archived ones, and the leaves of the checkpoints
-- stay, and prove what the archive contains; everything else of it is deleted.

ALTER TABLE run ADD COLUMN archived_at TEXT;
ALTER TABLE run ADD COLUMN archive_uri TEXT;
-- The last archived record. It never changes.
ALTER TABLE run ADD COLUMN archived_seq INTEGER;
CREATE TRIGGER run_stays_archived BEFORE UPDATE OF archived_seq ON run
  WHEN OLD.archived_seq IS NOT NULL AND NEW.archived_seq IS NOT OLD.archived_seq
  BEGIN SELECT RAISE(ABORT, 'a run that is archived stays so'); END;
CREATE INDEX run_closed ON run (closed_at, run_no) WHERE state = 'closed';

-- The audit still only grows, except for what is in an archive.
DROP TRIGGER audit_record_no_delete;
CREATE TRIGGER audit_record_no_delete BEFORE DELETE ON audit_record
  WHEN NOT EXISTS (SELECT 1 FROM run WHERE run_no = OLD.run_no AND archived_seq >= OLD.seq)
  BEGIN SELECT RAISE(ABORT, 'audit_record only grows until its run is archived'); END;
DROP TRIGGER record_path_no_delete;
CREATE TRIGGER record_path_no_delete BEFORE DELETE ON record_path
  WHEN (SELECT archived_seq FROM run WHERE run_no = OLD.run_no) IS NULL
  BEGIN SELECT RAISE(ABORT, 'record_path only grows until its run is archived'); END;
DROP TRIGGER artifact_no_delete;
CREATE TRIGGER artifact_no_delete BEFORE DELETE ON artifact
  WHEN (SELECT archived_seq FROM run WHERE run_no = OLD.run_no) IS NULL
  BEGIN SELECT RAISE(ABORT, 'artifact only grows until its run is archived'); END;
DROP TRIGGER upload_no_delete;
CREATE TRIGGER upload_no_delete BEFORE DELETE ON upload
  WHEN (SELECT archived_seq FROM run WHERE run_no = OLD.run_no) IS NULL
  BEGIN SELECT RAISE(ABORT, 'upload only grows until its run is archived'); END;
DROP TRIGGER call_reply_no_delete;
CREATE TRIGGER call_reply_no_delete BEFORE DELETE ON call_reply
  WHEN NOT EXISTS (SELECT 1 FROM audit_record a JOIN run ON run.run_no = a.run_no
    WHERE a.position = OLD.position AND run.archived_seq >= a.seq)
  BEGIN SELECT RAISE(ABORT, 'call_reply only grows until its run is archived'); END;
