-- Why: labels of a run can be replaced. They have a column of their own, because the rest of `body`, with the run's policy, never changes.

ALTER TABLE run ADD COLUMN labels TEXT NOT NULL DEFAULT '{}';
UPDATE run SET labels = coalesce(json_extract(body, '$.labels'), '{}');
