-- Why: labels of a run can be replaced. They have a column of their own, because the rest of `body`, with the run's policy, never changes.

ALTER TABLE run ADD COLUMN labels TEXT NOT NULL DEFAULT '{}';
-- Some members of a run may contain NUL, whose escape the server does not read. Labels do not.
UPDATE run SET labels = coalesce((replace(body, '\u0000', '\n')::json -> 'labels')::text, '{}');
