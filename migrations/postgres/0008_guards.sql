-- Why: a run without its head was in nobody's list any more, and a record before the first one was in everybody's. No run goes, and
-- one that is deleted stays so.

ALTER TABLE audit_record ADD CONSTRAINT audit_record_from_one CHECK (seq >= 1);

CREATE TRIGGER run_no_delete BEFORE DELETE OR TRUNCATE ON run FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER run_head_no_delete BEFORE DELETE OR TRUNCATE ON run_head FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE FUNCTION refuse_revival() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'a run that is deleted stays so';
END
$$;
CREATE TRIGGER run_stays_deleted BEFORE UPDATE ON run FOR EACH ROW
  WHEN (OLD.state = 'deleted' AND NEW.state <> 'deleted') EXECUTE FUNCTION refuse_revival();
