-- Why: a node that takes a run but cannot make its files must not make those of another node count as outdated. No node has opened the files
-- of the run under the epochs after `files_epoch` up to `unopened_epoch`. If the latter is not the epoch of now, it says nothing.

ALTER TABLE run_head ADD COLUMN files_epoch INTEGER;
ALTER TABLE run_head ADD COLUMN unopened_epoch INTEGER;
