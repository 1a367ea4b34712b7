//! The deliveries of messages to webhooks.

use async_trait::async_trait;
use model::{Record, RunId, WebhookDelivery, WebhookEvent, WebhookMessage};

use super::Store;
use super::lists::LedgerList;
use crate::backend::Backend;
use crate::entry_rows::fan_out;
use crate::statement::{Check, PageColumns, Param, RowReader, Rows, Select, Statement, tables, to_count};
use crate::{Ledger as _, LedgerError, LedgerPage, PageSize, RecordFilter, Result, rows};

/// Pending deliveries of a webhook from which on refused calls wait in the audit.
const MAX_PENDING: i64 = 10_000;
/// Pending deliveries of a webhook, and bytes of their messages, beyond which the newest are given up.
const MAX_WAITING: i64 = 20_000;
const MAX_WAITING_BYTES: i64 = 64 << 20;
const TOO_OLD: &str = "no attempt has succeeded within 3 days";
const TOO_MANY: &str = "not sent: too many messages wait for this receiver";
/// Refused calls of which one transaction makes deliveries.
const REFUSED_PER_QUERY: u32 = 500;
/// Deliveries of a webhook that are kept, besides pending ones.
const MAX_KEPT: i64 = 10_000;

const POSITION: Select<i64> = Select { sql: "SELECT position FROM webhook WHERE name = $1", read: |row| row.int(0) };
/// Advances a webhook that is still at the position `$2`.
const ADVANCE: &str = "UPDATE webhook SET position = $3 WHERE name = $1 AND position = $2";
const IS_SUBSCRIBED: Select<String> = Select {
    sql: "SELECT webhook FROM webhook_subscription WHERE event_type = $1 AND webhook = $2",
    read: |row| row.text(0),
};
const CLEAR_SUBSCRIPTIONS: &str = "DELETE FROM webhook_subscription";
const SUBSCRIBE: &str = "INSERT INTO webhook_subscription (event_type, webhook) VALUES ($1, $2)";
const REGISTER: &str = "INSERT INTO webhook (name, position) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
/// So that a webhook that is configured again later starts with the events from then on.
const FORGET_OTHERS: &str = "DELETE FROM webhook WHERE name NOT IN (SELECT webhook FROM webhook_subscription)";
const PENDING: Select<(String, u64)> = Select {
    sql: "SELECT webhook, count(*) FROM webhook_delivery WHERE state = 'pending' GROUP BY webhook",
    read: |row| Ok((row.text(0)?, to_count(row.int(1)?))),
};
const PENDING_OF: Select<i64> = Select {
    sql: "SELECT count(*) FROM (SELECT 1 FROM webhook_delivery WHERE state = 'pending' AND webhook = $1 \
    LIMIT 10000) AS pending",
    read: |row| row.int(0),
};
const WAITING: Select<(i64, i64, i64)> = Select {
    sql: "SELECT count(*), coalesce(sum(octet_length(body)), 0), \
    coalesce(sum(CASE WHEN attempts > 0 AND created_at < $2 THEN 1 ELSE 0 END), 0) \
    FROM webhook_delivery WHERE state = 'pending' AND webhook = $1",
    read: |row| Ok((row.int(0)?, row.int(1)?, row.int(2)?)),
};
const GIVE_UP_OLD: &str = "UPDATE webhook_delivery SET state = 'failed', last_error = $3 \
    WHERE state = 'pending' AND webhook = $1 AND attempts > 0 AND created_at < $2";
/// Refused calls are the first to be given up, and then the newest events of the runs that have most.
const GIVE_UP_MANY: &str = "UPDATE webhook_delivery SET state = 'failed', last_error = $4 WHERE delivery_no IN (\
    SELECT delivery_no FROM (SELECT delivery_no, row_number() OVER waiting AS number, \
    sum(bytes) OVER waiting AS total FROM (SELECT delivery_no, octet_length(body) AS bytes, \
    CASE WHEN event_type = 'call.refused' THEN 1 ELSE 0 END AS class, \
    row_number() OVER (PARTITION BY CASE WHEN event_type = 'call.refused' THEN 1 ELSE 0 END, run_id ORDER BY delivery_no) AS turn \
    FROM webhook_delivery WHERE state = 'pending' AND webhook = $1) AS pending \
    WINDOW waiting AS (ORDER BY class, turn, delivery_no)) AS numbered \
    WHERE number > $2 OR total > $3) AND state = 'pending'";
/// Refused calls come last, and runs take turns, so that no run and no flood of refused calls delays the events of others.
const DUE: &str = "SELECT delivery.delivery_no, message_id, body, attempts, delivery.next_attempt_at FROM (\
    SELECT delivery_no, next_attempt_at, CASE WHEN event_type = 'call.refused' THEN 1 ELSE 0 END AS class, \
    row_number() OVER (PARTITION BY CASE WHEN event_type = 'call.refused' THEN 1 ELSE 0 END, run_id \
    ORDER BY next_attempt_at, delivery_no) AS turn FROM webhook_delivery \
    WHERE state = 'pending' AND webhook = $1 AND next_attempt_at <= $2 \
    ORDER BY class, turn, next_attempt_at, delivery_no LIMIT $3) AS due \
    JOIN webhook_delivery AS delivery ON delivery.delivery_no = due.delivery_no \
    ORDER BY class, turn, delivery.next_attempt_at, delivery.delivery_no";
macro_rules! select_delivery {
    ($rest:literal) => {
        concat!(
            "SELECT delivery_no, message_id, event_type, run_id, state, attempts, last_status, last_error, ",
            "next_attempt_at, created_at FROM webhook_delivery ",
            $rest
        )
    };
}
/// Changes nothing if the delivery was made due again while the attempt was in progress.
const ATTEMPT: &str = "UPDATE webhook_delivery SET state = $3, attempts = $4, last_status = CAST($5 AS bigint), last_error = $6, \
    next_attempt_at = $7 WHERE delivery_no = $1 AND next_attempt_at = $2";
const DELIVERY_OF: Select<WebhookDelivery> =
    Select { sql: select_delivery!("WHERE webhook = $1 AND message_id = $2"), read: read_delivery };
const REDELIVER: &str = "UPDATE webhook_delivery SET state = 'pending', attempts = 0, next_attempt_at = $3 \
    WHERE webhook = $1 AND message_id = $2";
const PRUNE_OLD: &str = "DELETE FROM webhook_delivery WHERE created_at < $1 \
    AND (state <> 'pending' OR webhook NOT IN (SELECT name FROM webhook))";
const PRUNE_MANY: &str = "DELETE FROM webhook_delivery WHERE state <> 'pending' AND webhook = $1 AND delivery_no <= coalesce((\
    SELECT delivery_no FROM webhook_delivery WHERE webhook = $1 ORDER BY delivery_no DESC LIMIT 1 OFFSET $2), 0)";
const NAMES: Select<String> = Select { sql: "SELECT name FROM webhook ORDER BY name", read: |row| row.text(0) };

tables! {
    DELIVERY: Insert webhook_delivery (
        webhook Text, message_id Text, event_type Text, run_id Text, body Text, state Text, attempts Int,
        next_attempt_at Text, created_at Text
    );
}

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueDelivery {
    /// The number of the delivery.
    pub number: i64,
    /// The ID of the message.
    pub message_id: String,
    /// The JSON to send.
    pub body: String,
    /// The attempts before this one.
    pub attempts: u64,
    /// Since when it is due.
    pub due_at: String,
}

/// The result of an attempt to deliver a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryAttempt {
    /// The new state.
    pub state: model::DeliveryState,
    /// The number of attempts, with this one.
    pub attempts: u64,
    /// The status of the answer.
    pub status: Option<u16>,
    /// Why the attempt failed.
    pub error: Option<String>,
    /// When a pending delivery is attempted next, RFC 3339 UTC with microseconds.
    pub next_attempt_at: String,
}

/// Deliveries that were given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenUp {
    /// Those that were attempted for too long.
    pub too_old: u64,
    /// Those that were more than may wait.
    pub too_many: u64,
}

/// The part of the ledger that has the messages to webhooks. Messages of records are stored with them: see
/// [`Ledger::append`](crate::Ledger::append). Every method is one transaction.
#[async_trait]
pub trait WebhookLog: Send + Sync {
    /// Sets the webhooks, and the events of each. A new webhook receives the events from now on. The deliveries of one that is
    /// not configured any more are kept.
    async fn set_webhooks(&self, webhooks: &[(String, Vec<WebhookEvent>)]) -> Result<()>;
    /// Stores a message that belongs to no record for every webhook that is subscribed to its event.
    async fn notify(&self, message: &WebhookMessage) -> Result<()>;
    /// Stores deliveries to a webhook of the next calls that the policy refused. Does nothing while 10,000 are pending. Several
    /// transactions. Returns whether more follow.
    async fn enqueue_refused_calls(&self, webhook: &str) -> Result<bool>;
    /// Returns the pending deliveries of a webhook whose time has passed at `now`: refused calls last, runs by turns, and those of a
    /// run in the order of these times.
    async fn due_deliveries(&self, webhook: &str, now: &str, limit: u32) -> Result<Vec<DueDelivery>>;
    /// Stores the result of an attempt at `due`, unless it was redelivered since it was read: it is then attempted again.
    async fn record_attempt(&self, due: &DueDelivery, attempt: DeliveryAttempt) -> Result<()>;
    /// Lists the deliveries of a webhook after `after` in order of creation, each with its position for a cursor.
    async fn deliveries(
        &self,
        webhook: &str,
        newest_first: bool,
        after: Option<i64>,
        size: PageSize,
    ) -> Result<LedgerPage<(i64, WebhookDelivery)>>;
    /// Makes a delivery due at `now`, with all attempts. Returns it; `None` if the webhook has none of this message.
    async fn redeliver(&self, webhook: &str, message_id: &str, now: &str) -> Result<Option<WebhookDelivery>>;
    /// Counts the pending deliveries of each webhook that has any.
    async fn pending_deliveries(&self) -> Result<Vec<(String, u64)>>;
    /// Gives up pending deliveries of a webhook: those that were attempted and created before `before`, and then what is beyond
    /// 20,000 deliveries or 64 MiB of messages: refused calls first, then the newest of the runs that have most. They stay in the list as failed ones.
    async fn give_up_deliveries(&self, webhook: &str, before: &str) -> Result<GivenUp>;
    /// Deletes the deliveries that were created before `before`, and the oldest ones where a webhook has more than 10,000.
    /// Pending ones are kept if their webhook is configured.
    async fn prune_deliveries(&self, before: &str) -> Result<()>;
}

#[async_trait]
impl<B: Backend> WebhookLog for Store<B> {
    async fn set_webhooks(&self, webhooks: &[(String, Vec<WebhookEvent>)]) -> Result<()> {
        let newest = *self.0.newest_position().borrow();
        let mut statements = vec![Statement::new(CLEAR_SUBSCRIPTIONS, [])];
        for (name, events) in webhooks {
            statements.push(Statement::new(REGISTER, [name.as_str().into(), newest.into()]));
            let subscribe =
                |event: &WebhookEvent| Statement::new(SUBSCRIBE, [event.as_str().into(), name.as_str().into()]);
            statements.extend(events.iter().map(subscribe));
        }
        statements.push(Statement::new(FORGET_OTHERS, []));
        self.0.transact_alone(statements).await.map(drop)
    }

    async fn notify(&self, message: &WebhookMessage) -> Result<()> {
        self.0.transact(None, vec![fan_out(message)]).await.map(drop)
    }

    async fn enqueue_refused_calls(&self, webhook: &str) -> Result<bool> {
        let newest = *self.0.newest_position().borrow();
        let position = self.one(POSITION, vec![webhook.into()]).await?;
        let Some(position) = position.filter(|position| *position < newest) else { return Ok(false) };
        let event = WebhookEvent::CallRefused.as_str();
        let mut deliveries = Rows::new(&DELIVERY);
        let (mut to, mut has_more) = (newest, false);
        if self.one(IS_SUBSCRIBED, vec![event.into(), webhook.into()]).await?.is_some() {
            if self.one(PENDING_OF, vec![webhook.into()]).await?.unwrap_or(0) >= MAX_PENDING {
                return Ok(false);
            }
            let denied = RecordFilter { decision: Some("DENY".to_owned()), ..RecordFilter::default() };
            let page = self.records(&denied, Some(position), REFUSED_PER_QUERY.into()).await?;
            if let Some(last) = page.last() {
                // Records that were appended since `newest` was read may be among them.
                (to, has_more) = if page.more { (last.position, true) } else { (newest.max(last.position), false) };
            }
            for stored in page {
                // A record that direct access to the database has damaged is reported by the verification of its chain.
                let Ok(record) = serde_json::from_str::<Record>(&stored.text) else { continue };
                if let Some(message) = WebhookMessage::call_refused(&record) {
                    push(&mut deliveries, webhook, message);
                }
            }
        }
        // A process that was paused here must not put the position back, nor make deliveries again.
        let advance = Statement::new(ADVANCE, [webhook.into(), position.into(), to.into()]);
        let advance = Statement { check: Some(Check::IsAtPosition), ..advance };
        match self.0.write(Some(advance), vec![deliveries]).await {
            // From the new position on, by this process or by the one that has advanced it.
            Err(LedgerError::PositionMoved) => Ok(true),
            written => written.map(|()| has_more),
        }
    }

    async fn due_deliveries(&self, webhook: &str, now: &str, limit: u32) -> Result<Vec<DueDelivery>> {
        let read = |row: &dyn RowReader| {
            let (number, message_id, body) = (row.int(0)?, row.text(1)?, row.text(2)?);
            Ok(DueDelivery { number, message_id, body, attempts: to_count(row.int(3)?), due_at: row.text(4)? })
        };
        self.0.fetch(DUE, vec![webhook.into(), now.into(), Param::Int(limit.into())], read).await
    }

    async fn record_attempt(&self, due: &DueDelivery, attempt: DeliveryAttempt) -> Result<()> {
        let DeliveryAttempt { state, attempts, status, error, next_attempt_at } = attempt;
        let params = [
            due.number.into(),
            due.due_at.as_str().into(),
            state.as_str().into(),
            attempts.into(),
            // As text, since a parameter has one type, whether it has a value or none.
            status.map(|status| status.to_string()).into(),
            error.into(),
            next_attempt_at.into(),
        ];
        self.0.transact(None, vec![Statement::new(ATTEMPT, params)]).await.map(drop)
    }

    async fn deliveries(
        &self,
        webhook: &str,
        newest_first: bool,
        after: Option<i64>,
        size: PageSize,
    ) -> Result<LedgerPage<(i64, WebhookDelivery)>> {
        let list = LedgerList {
            what: "delivery",
            select: select_delivery!(""),
            condition: " AND webhook = $3",
            more_params: vec![webhook.into()],
            read: |row| Ok((row.int(0)?, read_delivery(row))),
            columns: PageColumns::ascending("delivery_no", &["message_id", "run_id", "last_error"]),
            position: "delivery_no",
            text: None,
            newest_first,
            scans: false,
        };
        self.list_readable(list, after, size, |_| true).await
    }

    async fn redeliver(&self, webhook: &str, message_id: &str, now: &str) -> Result<Option<WebhookDelivery>> {
        let params = [webhook.into(), message_id.into(), now.into()];
        if self.0.transact(None, vec![Statement::new(REDELIVER, params)]).await? == 0 {
            return Ok(None);
        }
        self.one(DELIVERY_OF, vec![webhook.into(), message_id.into()]).await
    }

    async fn pending_deliveries(&self) -> Result<Vec<(String, u64)>> {
        self.all(PENDING, Vec::new()).await
    }

    async fn give_up_deliveries(&self, webhook: &str, before: &str) -> Result<GivenUp> {
        // A query first: it needs no turn of the writer.
        let found = self.one(WAITING, vec![webhook.into(), before.into()]).await?;
        let (waiting, bytes, old) = found.unwrap_or_default();
        let mut given_up = GivenUp::default();
        if old > 0 {
            let params = [webhook.into(), before.into(), TOO_OLD.into()];
            given_up.too_old = self.0.transact(None, vec![Statement::new(GIVE_UP_OLD, params)]).await?;
        }
        if waiting > MAX_WAITING || bytes > MAX_WAITING_BYTES {
            let params = [webhook.into(), MAX_WAITING.into(), MAX_WAITING_BYTES.into(), TOO_MANY.into()];
            given_up.too_many = self.0.transact(None, vec![Statement::new(GIVE_UP_MANY, params)]).await?;
        }
        Ok(given_up)
    }

    async fn prune_deliveries(&self, before: &str) -> Result<()> {
        let mut statements = vec![Statement::new(PRUNE_OLD, [before.into()])];
        for name in self.all(NAMES, Vec::new()).await? {
            statements.push(Statement::new(PRUNE_MANY, [name.into(), MAX_KEPT.into()]));
        }
        self.0.transact(None, statements).await.map(drop)
    }
}

fn push(deliveries: &mut Rows<'static>, webhook: &str, message: WebhookMessage) {
    let WebhookMessage { id, event, run_id, created_at, body } = message;
    deliveries.push([
        webhook.to_owned().into(),
        id.into(),
        event.as_str().into(),
        run_id.as_ref().map(RunId::as_str).into(),
        body.into(),
        model::DeliveryState::Pending.as_str().into(),
        0_i64.into(),
        created_at.clone().into(),
        created_at.into(),
    ]);
}

/// Reads a row of `select_delivery`.
fn read_delivery(row: &dyn RowReader) -> Result<WebhookDelivery> {
    let state = rows::enum_value(&row.text(4)?, "delivery state")?;
    let run_id = row.maybe_text(3)?.map(|_| rows::run_id(row, 3)).transpose()?;
    let last_status = row.maybe_int(6)?.map(u16::try_from).transpose();
    Ok(WebhookDelivery {
        id: row.text(1)?,
        event: rows::enum_value(&row.text(2)?, "event")?,
        run_id,
        state,
        attempts: to_count(row.int(5)?),
        last_status: last_status.map_err(|error| LedgerError::Internal(error.into()))?,
        last_error: row.maybe_text(7)?,
        next_attempt_at: Some(row.text(8)?).filter(|_| state == model::DeliveryState::Pending),
        created_at: row.text(9)?,
    })
}
