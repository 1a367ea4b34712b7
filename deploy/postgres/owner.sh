#!/bin/sh
# Creates the owner of the tables and the database, as the superuser, when the cluster is created. The owner is not a
# superuser. $OWNER_PASSWORD_FILE names the file with its password.
set -eu
psql -v ON_ERROR_STOP=1 --no-psqlrc -U "${POSTGRES_USER:-postgres}" -d postgres <<'SQL'
\set password `cat "$OWNER_PASSWORD_FILE"`
CREATE ROLE workspaced_owner LOGIN CREATEROLE PASSWORD :'password';
CREATE DATABASE workspaced OWNER workspaced_owner;
REVOKE ALL ON DATABASE workspaced FROM PUBLIC;
SQL
