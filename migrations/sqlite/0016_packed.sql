-- Why: records, replies, diffs and contents are most of the database, and are stored compressed now. Rows of earlier versions stay
-- as they are.

-- The size before compression; NULL if the value is not compressed.
ALTER TABLE audit_record ADD COLUMN body_bytes INTEGER;
ALTER TABLE call_reply ADD COLUMN body_bytes INTEGER;
ALTER TABLE artifact ADD COLUMN diff_bytes INTEGER;
ALTER TABLE content ADD COLUMN raw_bytes INTEGER;
ALTER TABLE upload ADD COLUMN raw_bytes INTEGER;
-- The compressed `body`, which is empty then.
ALTER TABLE audit_record ADD COLUMN packed BLOB;
ALTER TABLE call_reply ADD COLUMN packed BLOB;
-- Whether the content refers to the diff of its record.
ALTER TABLE content ADD COLUMN needs_diff INTEGER;
