-- Why: signed checkpoints over the heads of all runs, so that a history that was cut off or rewritten whole is found too.

-- Where a run's chain stood when a checkpoint was made; the leaves of one tree, from 0.
CREATE TABLE checkpoint_leaf (
  leaf_no BIGINT PRIMARY KEY,
  run_no BIGINT NOT NULL REFERENCES run,
  head_seq BIGINT NOT NULL,
  head_hash BYTEA NOT NULL
);
CREATE INDEX checkpoint_leaf_by_run ON checkpoint_leaf (run_no, head_seq);

-- The tree's complete subtrees, leaves too, in the order in which they were completed: proofs are made of them.
CREATE TABLE checkpoint_node (
  place BIGINT PRIMARY KEY,
  hash BYTEA NOT NULL
);

-- What was signed over the first `size` leaves, and up to which record it was looked for moved heads.
CREATE TABLE checkpoint (
  size BIGINT PRIMARY KEY,
  position BIGINT NOT NULL,
  note TEXT NOT NULL
);

-- All of it only grows.
CREATE TRIGGER checkpoint_leaf_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON checkpoint_leaf FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER checkpoint_node_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON checkpoint_node FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER checkpoint_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON checkpoint FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
