-- Why: the index by path had a page for each path that anybody used, and each record wrote to another one: with millions of
-- records every commit changed pages all over the file. In parts of 65,536 records new ones go to few pages.

DROP INDEX record_path_by_path;
CREATE INDEX record_path_by_part ON record_path (position >> 16, path, position, run_no);
