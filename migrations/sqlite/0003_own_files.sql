-- Why: runs share what they started from, so that the size of a run's tree says little about what the run itself stores.

ALTER TABLE run_head ADD COLUMN own_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run_head ADD COLUMN own_files INTEGER NOT NULL DEFAULT 0;
