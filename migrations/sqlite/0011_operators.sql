-- Why: operators have names, so that the audit and approvals show who decided; several of them may have to approve a call.

CREATE TABLE operator_token (
  operator_no INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  secret_sha256 BLOB NOT NULL UNIQUE,
  scopes TEXT NOT NULL,
  created_at TEXT NOT NULL,
  created_by TEXT NOT NULL,
  expires_at TEXT,
  revoked_at TEXT
) STRICT;
-- Names that differ in letter case only are the same name.
CREATE UNIQUE INDEX operator_token_by_name ON operator_token (lower(name)) WHERE revoked_at IS NULL;

-- The operators who have approved a call. Each counts once.
CREATE TABLE approval_vote (
  vote_no INTEGER PRIMARY KEY,
  approval_id TEXT NOT NULL,
  voter TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX approval_vote_by_approval ON approval_vote (approval_id, lower(voter));
