-- Why: REPLACE takes rows away without a trigger on DELETE, and a run without its head was in nobody's list any more. No row of
-- what only grows is put before or in the place of another, no run goes, and one that is deleted stays so.

CREATE TRIGGER audit_record_no_replace BEFORE INSERT ON audit_record
  WHEN NEW.seq < 1 OR NEW.position <= (SELECT max(position) FROM audit_record)
    OR EXISTS (SELECT 1 FROM audit_record r WHERE r.run_no = NEW.run_no AND r.seq = NEW.seq)
  BEGIN SELECT RAISE(ABORT, 'audit_record only grows'); END;
CREATE TRIGGER record_path_no_replace BEFORE INSERT ON record_path
  WHEN EXISTS (SELECT 1 FROM record_path p WHERE p.position = NEW.position AND p.path = NEW.path)
  BEGIN SELECT RAISE(ABORT, 'record_path only grows'); END;
CREATE TRIGGER call_reply_no_replace BEFORE INSERT ON call_reply
  WHEN NEW.position <= (SELECT max(position) FROM call_reply)
  BEGIN SELECT RAISE(ABORT, 'call_reply only grows'); END;
CREATE TRIGGER artifact_no_replace BEFORE INSERT ON artifact
  WHEN NEW.position <= (SELECT max(position) FROM artifact)
    OR EXISTS (SELECT 1 FROM artifact a WHERE a.artifact_id = NEW.artifact_id AND a.run_no = NEW.run_no)
  BEGIN SELECT RAISE(ABORT, 'artifact only grows'); END;
CREATE TRIGGER content_no_replace BEFORE INSERT ON content
  WHEN NEW.content_no <= (SELECT max(content_no) FROM content)
  BEGIN SELECT RAISE(ABORT, 'content only grows'); END;

CREATE TRIGGER run_no_delete BEFORE DELETE ON run BEGIN SELECT RAISE(ABORT, 'run only grows'); END;
CREATE TRIGGER run_head_no_delete BEFORE DELETE ON run_head BEGIN SELECT RAISE(ABORT, 'run_head only grows'); END;
CREATE TRIGGER run_stays_deleted BEFORE UPDATE OF state ON run
  WHEN OLD.state = 'deleted' AND NEW.state <> 'deleted'
  BEGIN SELECT RAISE(ABORT, 'a run that is deleted stays so'); END;
