-- Why: what was refused in one run is a dashboard's first question, and was looked for among all records of the run. Calls that
-- went well do not touch this index.

CREATE INDEX audit_record_refused ON audit_record (run_no, seq) WHERE decision <> 'ALLOW' OR outcome <> 'ok';
