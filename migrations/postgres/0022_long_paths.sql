-- Why: a row of an index has at most about 2,700 bytes, and a path up to 4,096. A record with a longer path could not be stored. The
-- indexes have the first 512 characters of each path now, which are at most 2,048 bytes.

ALTER TABLE record_path DROP CONSTRAINT record_path_pkey;
CREATE INDEX record_path_by_position ON record_path (position);
DROP INDEX record_path_by_part;
CREATE INDEX record_path_by_part ON record_path ((position >> 16), substr(path, 1, 512), position, run_no);
