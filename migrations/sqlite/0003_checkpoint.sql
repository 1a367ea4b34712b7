-- Why: signed checkpoints over the heads of all runs, so that a history that was cut off or rewritten whole is found too.

-- Where a run's chain stood when a checkpoint was made; the leaves of one tree, from 0.
CREATE TABLE checkpoint_leaf (
  leaf_no INTEGER PRIMARY KEY,
  run_no INTEGER NOT NULL REFERENCES run,
  head_seq INTEGER NOT NULL,
  head_hash BLOB NOT NULL
) STRICT;
CREATE INDEX checkpoint_leaf_by_run ON checkpoint_leaf (run_no, head_seq);

-- The tree's complete subtrees, leaves too, in the order in which they were completed: proofs are made of them.
CREATE TABLE checkpoint_node (
  place INTEGER PRIMARY KEY,
  hash BLOB NOT NULL
) STRICT;

-- What was signed over the first `size` leaves, and up to which record it was looked for moved heads.
CREATE TABLE checkpoint (
  size INTEGER PRIMARY KEY,
  position INTEGER NOT NULL,
  note TEXT NOT NULL
) STRICT;

-- All of it only grows.
CREATE TRIGGER checkpoint_leaf_no_update BEFORE UPDATE ON checkpoint_leaf BEGIN SELECT RAISE(ABORT, 'checkpoint_leaf only grows'); END;
CREATE TRIGGER checkpoint_leaf_no_delete BEFORE DELETE ON checkpoint_leaf BEGIN SELECT RAISE(ABORT, 'checkpoint_leaf only grows'); END;
CREATE TRIGGER checkpoint_node_no_update BEFORE UPDATE ON checkpoint_node BEGIN SELECT RAISE(ABORT, 'checkpoint_node only grows'); END;
CREATE TRIGGER checkpoint_node_no_delete BEFORE DELETE ON checkpoint_node BEGIN SELECT RAISE(ABORT, 'checkpoint_node only grows'); END;
CREATE TRIGGER checkpoint_no_update BEFORE UPDATE ON checkpoint BEGIN SELECT RAISE(ABORT, 'checkpoint only grows'); END;
CREATE TRIGGER checkpoint_no_delete BEFORE DELETE ON checkpoint BEGIN SELECT RAISE(ABORT, 'checkpoint only grows'); END;
