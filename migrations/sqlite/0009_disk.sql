-- Why: what a run's tree holds is bounded, and is not to be counted by walking trees at every start. Kept with the head, which
-- every call writes anyway; NULL where nobody has counted yet.

ALTER TABLE run_head ADD COLUMN disk_bytes INTEGER;
ALTER TABLE run_head ADD COLUMN disk_files INTEGER;
