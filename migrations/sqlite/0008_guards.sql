-- Why: a run without its head was in nobody's list any more. No run goes, and one that is deleted stays so.

-- None before INSERT, which would keep REPLACE from taking rows away: each costs a tenth of a call, and who goes past the service
-- with REPLACE goes past a trigger as well. The chain tells.
CREATE TRIGGER run_no_delete BEFORE DELETE ON run BEGIN SELECT RAISE(ABORT, 'run only grows'); END;
CREATE TRIGGER run_head_no_delete BEFORE DELETE ON run_head BEGIN SELECT RAISE(ABORT, 'run_head only grows'); END;
CREATE TRIGGER run_stays_deleted BEFORE UPDATE OF state ON run
  WHEN OLD.state = 'deleted' AND NEW.state <> 'deleted'
  BEGIN SELECT RAISE(ABORT, 'a run that is deleted stays so'); END;
