#!/bin/sh
# Creates or updates the append-only role of the service, as the owner of the tables. Running it again is safe.
#
#   OWNER_URL_FILE=… SERVICE_PASSWORD_FILE=… deploy/postgres/service.sh deploy/roles.sql
#
# The tables must exist: run `workspaced verify` as their owner before.
set -eu
psql -v ON_ERROR_STOP=1 --no-psqlrc -q -d "$(cat "$OWNER_URL_FILE")" -f "$1" -f - <<'SQL'
\set password `cat "$SERVICE_PASSWORD_FILE"`
SELECT 'CREATE ROLE workspaced LOGIN IN ROLE workspaced_service'
  WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'workspaced') \gexec
ALTER ROLE workspaced PASSWORD :'password';
GRANT CONNECT ON DATABASE workspaced TO workspaced_service;
SQL
