-- Why: a heartbeat that expires later than its lease allows was sent before the clock of the database was set back, and says nothing.
-- Nodes of earlier versions have the default.

ALTER TABLE node ADD COLUMN lease_ms BIGINT NOT NULL DEFAULT 10000;
