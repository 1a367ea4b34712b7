-- Why: four eyes are those of different persons, so votes name the person and do not count once their operator is revoked; the counts
-- of a run are those of its agent.

ALTER TABLE approval_vote ADD COLUMN on_behalf_of TEXT;
ALTER TABLE approval_vote ADD COLUMN voted_at TEXT;
-- An operator that was revoked and made anew votes anew: its earlier vote stays, and does not count.
DROP INDEX approval_vote_by_approval;
CREATE UNIQUE INDEX approval_vote_by_approval ON approval_vote (approval_id, lower(voter), coalesce(voted_at, ''));
-- When the operator was revoked. A token that another one replaced has a `revoked_at` as well.
ALTER TABLE operator_token ADD COLUMN withdrawn_at TEXT;
CREATE INDEX operator_token_withdrawn ON operator_token (lower(name)) WHERE withdrawn_at IS NOT NULL;
-- Records that are not by the agent, and the mutations among them. Records of earlier versions count as the agent's.
ALTER TABLE run_head ADD COLUMN people_records BIGINT NOT NULL DEFAULT 0;
ALTER TABLE run_head ADD COLUMN people_mutations BIGINT NOT NULL DEFAULT 0;
