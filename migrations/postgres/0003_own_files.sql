-- Why: runs share what they started from, so that the size of a run's tree says little about what the run itself stores.

ALTER TABLE run_head ADD COLUMN own_bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE run_head ADD COLUMN own_files BIGINT NOT NULL DEFAULT 0;
