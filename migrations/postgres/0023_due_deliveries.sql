-- Why: what is due is ordered by the kind of event and by turns of the runs, which an index without them would read from the rows.

DROP INDEX webhook_delivery_pending;
CREATE INDEX webhook_delivery_due ON webhook_delivery (webhook, next_attempt_at, event_type, run_id, delivery_no) WHERE state = 'pending';
