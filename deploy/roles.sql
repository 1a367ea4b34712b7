-- A role for the service that may add to the audit, but not change or remove any of it. The owner of the database makes
-- the tables and this role, and the service logs in as a member of it:
--
--   workspaced verify --database-url OWNER_URL     # brings the tables up to date, and checks the chains
--   psql OWNER_URL -f deploy/roles.sql
--   psql OWNER_URL -c "CREATE ROLE workspaced LOGIN PASSWORD '…' IN ROLE workspaced_service"
--
-- Do the first two again before a new version is started: the service itself then only looks whether the tables are up to
-- date. It can be run as often as one likes.
DO $$
BEGIN
  CREATE ROLE workspaced_service NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
  NULL; -- Roles belong to the cluster: another database has made it.
END
$$;
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO workspaced_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO workspaced_service;
-- What only grows. A content goes with its run: a trigger sees to it that the run is deleted.
REVOKE UPDATE, DELETE ON audit_record, record_path, call_reply, artifact, audit_zone, checkpoint, checkpoint_leaf,
  checkpoint_node FROM workspaced_service;
REVOKE UPDATE ON content FROM workspaced_service;
REVOKE DELETE ON run, run_head FROM workspaced_service;
REVOKE INSERT, UPDATE, DELETE ON schema_migration FROM workspaced_service;
