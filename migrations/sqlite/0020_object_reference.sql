-- Why: objects in the object store are deleted when no run refers to them any more. `object` is the name of a content, or what the
-- names of a base's parts begin with.

CREATE TABLE object_reference (
  object TEXT NOT NULL,
  run_no INTEGER NOT NULL,
  PRIMARY KEY (object, run_no)
) STRICT, WITHOUT ROWID;
CREATE INDEX object_reference_by_run ON object_reference (run_no);
