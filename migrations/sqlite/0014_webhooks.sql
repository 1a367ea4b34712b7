-- Why: webhooks are notified of events. A delivery is stored in the commit of its event, so that a kill loses none.

-- The configured webhooks. Refused calls up to `position` have their deliveries.
CREATE TABLE webhook (
  name TEXT PRIMARY KEY,
  position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The events that the configured webhooks receive.
CREATE TABLE webhook_subscription (
  event_type TEXT NOT NULL,
  webhook TEXT NOT NULL,
  PRIMARY KEY (event_type, webhook)
) STRICT, WITHOUT ROWID;

CREATE TABLE webhook_delivery (
  delivery_no INTEGER PRIMARY KEY,
  webhook TEXT NOT NULL,
  message_id TEXT NOT NULL,
  event_type TEXT NOT NULL,
  run_id TEXT,
  body TEXT NOT NULL,
  state TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  last_status INTEGER,
  last_error TEXT,
  next_attempt_at TEXT NOT NULL,
  created_at TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX webhook_delivery_by_message ON webhook_delivery (webhook, message_id);
CREATE INDEX webhook_delivery_by_webhook ON webhook_delivery (webhook, delivery_no);
CREATE INDEX webhook_delivery_pending ON webhook_delivery (webhook, next_attempt_at, delivery_no) WHERE state = 'pending';
