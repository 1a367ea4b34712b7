-- Why: events of a run are limited in number and in bytes, and larger payloads of them are stored by their digest.

-- With the head, which every record writes anyway.
ALTER TABLE run_head ADD COLUMN events INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run_head ADD COLUMN event_bytes INTEGER NOT NULL DEFAULT 0;

-- `position` is that of the record of the upload, so that new rows are appended at the end.
CREATE TABLE upload (
  position INTEGER PRIMARY KEY,
  run_no INTEGER NOT NULL,
  sha256 BLOB NOT NULL,
  bytes BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX upload_by_digest ON upload (run_no, sha256);

CREATE TRIGGER upload_no_update BEFORE UPDATE ON upload BEGIN SELECT RAISE(ABORT, 'upload only grows'); END;
CREATE TRIGGER upload_no_delete BEFORE DELETE ON upload BEGIN SELECT RAISE(ABORT, 'upload only grows'); END;
