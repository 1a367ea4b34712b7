-- Why: events of a run are limited in number and in bytes, and larger payloads of them are stored by their digest.

-- With the head, which every record writes anyway.
ALTER TABLE run_head ADD COLUMN events BIGINT NOT NULL DEFAULT 0;
ALTER TABLE run_head ADD COLUMN event_bytes BIGINT NOT NULL DEFAULT 0;

-- `position` is that of the record of the upload, so that new rows are appended at the end.
CREATE TABLE upload (
  position BIGINT PRIMARY KEY,
  run_no BIGINT NOT NULL,
  sha256 BYTEA NOT NULL,
  bytes BYTEA NOT NULL
);
CREATE UNIQUE INDEX upload_by_digest ON upload (run_no, sha256);

CREATE TRIGGER upload_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON upload FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
