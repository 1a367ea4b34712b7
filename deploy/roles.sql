-- Creates an append-only PostgreSQL role: the service can add to the audit but cannot change or remove any of it. The owner
-- of the database creates the tables and this role. The service logs in as a member of the role:
--
--   workspaced verify --database-url OWNER_URL     # migrates the tables and checks the chains
--   psql OWNER_URL -f deploy/roles.sql
--   psql OWNER_URL -c "CREATE ROLE workspaced LOGIN PASSWORD '…' IN ROLE workspaced_service"
--
-- Repeat the first two commands before starting a new version: with this role, the service only checks whether the tables are
-- up to date. Running this file again is safe.
DO $$
BEGIN
  CREATE ROLE workspaced_service NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
  NULL; -- Roles belong to the cluster: another database may have created it.
END
$$;
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO workspaced_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO workspaced_service;
-- The positions of records.
GRANT SELECT, USAGE, UPDATE ON SEQUENCE record_position TO workspaced_service;
-- Append-only tables. Contents are deleted with their run; a trigger ensures that the run is deleted. With --archive-after the role
-- also deletes what is archived, and the service does not start without that: operations/retention.md has the GRANT.
REVOKE UPDATE, DELETE ON audit_record, record_path, call_reply, artifact, upload, audit_zone, checkpoint, checkpoint_leaf,
  checkpoint_node FROM workspaced_service;
REVOKE UPDATE ON content FROM workspaced_service;
REVOKE DELETE ON operator_token FROM workspaced_service;
REVOKE UPDATE, DELETE ON approval_vote FROM workspaced_service;
REVOKE DELETE ON run, run_head, node, node_role FROM workspaced_service;
REVOKE INSERT, UPDATE, DELETE ON schema_migration FROM workspaced_service;
