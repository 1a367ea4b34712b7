-- Why: a closed run can be moved to an archive. Its row, its first record after the archived ones, and the leaves of the checkpoints
-- stay, and prove what the archive contains; everything else of it is deleted.

ALTER TABLE run ADD COLUMN archived_at TEXT;
ALTER TABLE run ADD COLUMN archive_uri TEXT;
-- The last archived record. It never changes.
ALTER TABLE run ADD COLUMN archived_seq BIGINT;
CREATE FUNCTION refuse_unarchiving() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'a run that is archived stays so';
END
$$;
CREATE TRIGGER run_stays_archived BEFORE UPDATE ON run FOR EACH ROW
  WHEN (OLD.archived_seq IS NOT NULL AND NEW.archived_seq IS DISTINCT FROM OLD.archived_seq)
  EXECUTE FUNCTION refuse_unarchiving();
CREATE INDEX run_closed ON run (closed_at, run_no) WHERE state = 'closed';

-- The audit still only grows, except for what is in an archive.
CREATE FUNCTION refuse_early_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT archived_seq FROM run WHERE run_no = OLD.run_no) IS NULL THEN
    RAISE EXCEPTION '% only grows until its run is archived', TG_TABLE_NAME;
  END IF;
  RETURN OLD;
END
$$;
CREATE FUNCTION refuse_early_record_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM run WHERE run_no = OLD.run_no AND archived_seq >= OLD.seq) THEN
    RAISE EXCEPTION '% only grows until its run is archived', TG_TABLE_NAME;
  END IF;
  RETURN OLD;
END
$$;
CREATE FUNCTION refuse_early_reply_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM audit_record a JOIN run ON run.run_no = a.run_no
      WHERE a.position = OLD.position AND run.archived_seq >= a.seq) THEN
    RAISE EXCEPTION '% only grows until its run is archived', TG_TABLE_NAME;
  END IF;
  RETURN OLD;
END
$$;
DROP TRIGGER audit_record_no_change ON audit_record;
DROP TRIGGER record_path_no_change ON record_path;
DROP TRIGGER call_reply_no_change ON call_reply;
DROP TRIGGER artifact_no_change ON artifact;
DROP TRIGGER upload_no_change ON upload;
CREATE TRIGGER audit_record_no_change BEFORE UPDATE OR TRUNCATE ON audit_record FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER record_path_no_change BEFORE UPDATE OR TRUNCATE ON record_path FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER call_reply_no_change BEFORE UPDATE OR TRUNCATE ON call_reply FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER artifact_no_change BEFORE UPDATE OR TRUNCATE ON artifact FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER upload_no_change BEFORE UPDATE OR TRUNCATE ON upload FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER audit_record_no_delete BEFORE DELETE ON audit_record FOR EACH ROW EXECUTE FUNCTION refuse_early_record_delete();
CREATE TRIGGER record_path_no_delete BEFORE DELETE ON record_path FOR EACH ROW EXECUTE FUNCTION refuse_early_delete();
CREATE TRIGGER call_reply_no_delete BEFORE DELETE ON call_reply FOR EACH ROW EXECUTE FUNCTION refuse_early_reply_delete();
CREATE TRIGGER artifact_no_delete BEFORE DELETE ON artifact FOR EACH ROW EXECUTE FUNCTION refuse_early_delete();
CREATE TRIGGER upload_no_delete BEFORE DELETE ON upload FOR EACH ROW EXECUTE FUNCTION refuse_early_delete();
