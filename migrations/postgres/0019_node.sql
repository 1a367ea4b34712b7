-- Why: several nodes write to one database. Each run belongs to one of them at a time, and each commit names the epoch under which its
-- node owns the run, so that a node that has lost a run cannot commit to it.

-- One row for each node that has ever joined. Times are milliseconds since 1970 by the clock of the database.
CREATE TABLE node (
  node_id TEXT PRIMARY KEY,
  incarnation BIGINT NOT NULL,
  url TEXT NOT NULL,
  started_at_ms BIGINT NOT NULL,
  expires_at_ms BIGINT NOT NULL
);

-- Work that one node does for all. Rows are made when a role is taken first.
CREATE TABLE node_role (
  role TEXT PRIMARY KEY,
  owner_node TEXT,
  owner_incarnation BIGINT,
  epoch BIGINT NOT NULL
);

-- The epoch grows whenever the owner changes. It is 0 for a run that no node has owned.
ALTER TABLE run_head ADD COLUMN owner_node TEXT;
ALTER TABLE run_head ADD COLUMN owner_incarnation BIGINT;
ALTER TABLE run_head ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;
