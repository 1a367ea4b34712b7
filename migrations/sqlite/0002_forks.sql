-- Why: a run can be a fork of another run. `parent_id` is the ID of that run: of a fork, whose row may be loaded before that of its parent.

ALTER TABLE run ADD COLUMN parent_id TEXT;
ALTER TABLE run ADD COLUMN forked_at INTEGER;
-- The record of the fork up to which its changes are merged into its parent.
ALTER TABLE run ADD COLUMN merged_seq INTEGER;
CREATE INDEX run_by_parent ON run (parent_id, run_no) WHERE parent_id IS NOT NULL;
