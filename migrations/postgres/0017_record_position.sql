-- Why: positions of records came from the newest record, under a lock that let one transaction commit at a time. They come from a
-- sequence now, so that commits of different runs need not wait for each other.

CREATE SEQUENCE record_position MINVALUE 0 START WITH 0;
-- Also of rows whose record was removed: a new record must not get such a position.
SELECT setval('record_position', (SELECT coalesce(max(position), 0) FROM (
  SELECT max(position) AS position FROM audit_record UNION ALL SELECT max(position) FROM record_path
  UNION ALL SELECT max(position) FROM call_reply UNION ALL SELECT max(position) FROM artifact
  UNION ALL SELECT max(position) FROM upload UNION ALL SELECT max(content_no) >> 20 FROM content) AS known));
