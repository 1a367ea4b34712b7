-- Why: objects in the object store are deleted when no run refers to them any more. `object` is the name of a content, or what the
-- names of a base's parts begin with.

CREATE TABLE object_reference (
  object TEXT COLLATE "C" NOT NULL,
  run_no BIGINT NOT NULL,
  PRIMARY KEY (object, run_no)
);
CREATE INDEX object_reference_by_run ON object_reference (run_no);
