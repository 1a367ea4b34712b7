-- Why: every index is written to with every row. What a record left, and its diff, lie under their own keys now, not under a
-- number of their own with an index beside it.

ALTER TABLE content DROP COLUMN content_no;
DROP INDEX content_by_record;
ALTER TABLE content ADD PRIMARY KEY (run_no, seq, sha256);

ALTER TABLE artifact DROP COLUMN artifact_no;
ALTER TABLE artifact DROP CONSTRAINT artifact_artifact_id_run_no_key;
ALTER TABLE artifact ADD PRIMARY KEY (artifact_id, run_no);
