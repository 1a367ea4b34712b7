//! The tokens of a run, as its records tell of them: without their secrets.

use async_recursion::async_recursion as boxed;
use std::collections::BTreeMap;

use ledger::{PageSize, RecordFilter, RecordReader};
use model::{Permission, RUN_TOKEN_ACTOR, Record, RunId, RunToken, TokenId};
use serde::Deserialize;

use crate::CallError;
use crate::history::content_history;
use crate::page::{Cursor, ListKey, Page};
use crate::run::last_records::last_records;
use crate::run::lifecycle::STOP;
use crate::runs::Runs;

/// The newest records of the run that are searched for the last calls of its tokens.
const MAX_SEARCHED: usize = 10_000;
/// The first record of a run, which has its first token.
const FIRST: u64 = 1;

/// What a record says of a token.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    token_id: TokenId,
    #[serde(default)]
    permissions: Vec<Permission>,
    expires_at: Option<String>,
}

impl Runs {
    /// Returns a page of the tokens of a run, in the order in which they were issued.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_CLOSED` if the run is archived.
    #[boxed]
    pub async fn run_tokens(
        &self,
        run: &RunId,
        after: Option<Cursor>,
        limit: u32,
        list: &ListKey,
    ) -> Result<Page<RunToken>, CallError> {
        self.engine.run(run).await?;
        self.engine.check_not_archived(Some(run)).await?;
        let of_tool = |tool: &str| RecordFilter {
            run: Some(run.clone()),
            tool: Some(tool.to_owned()),
            ..RecordFilter::default()
        };
        let after = after.map(Cursor::position);
        let mut page = self.engine.ledger.records(&of_tool("token.issue"), after, PageSize::rows(limit)).await?;
        if after.is_none()
            && let Some(first) = self.engine.ledger.record(run, FIRST).await?
        {
            page.items.insert(0, first);
            if page.items.len() > limit as usize {
                (page.more, page.resume) = (true, None);
                page.items.truncate(limit as usize);
            }
        }
        let ledger::LedgerPage { items: found, more, resume } = page;
        let revoked = self.revocations(of_tool("token.revoke")).await?;
        let stops = self.records_of(of_tool(STOP)).await?;
        let mut items = Vec::with_capacity(found.len());
        for stored in found {
            let record = content_history::parse(&stored.text)?;
            let Some(mut token) = token_of(&record) else { continue };
            // Or with all the others that there were when the agent was stopped.
            let stopped = stops.iter().find(|(position, _)| *position > stored.position);
            let ends = revoked.get(&token.token_id).into_iter().chain(stopped.map(|(_, stop)| &stop.timestamp));
            token.revoked_at = ends.min().cloned();
            items.push((stored.position, token));
        }
        let actor = |token: &RunToken| format!("{RUN_TOKEN_ACTOR}{}", token.token_id);
        let wanted = items.iter().map(|(_, token)| (actor(token), 0)).collect();
        let last = last_records(&*self.engine.ledger, run, wanted, MAX_SEARCHED).await?;
        for (_, token) in &mut items {
            token.last_used_at = last.get(&actor(token)).map(|record| record.timestamp.clone());
        }
        Ok(Page::of(ledger::LedgerPage { items, more, resume }, list))
    }

    /// Returns when each revoked token was revoked.
    async fn revocations(&self, filter: RecordFilter) -> Result<BTreeMap<TokenId, String>, CallError> {
        let mut revoked = BTreeMap::new();
        for (_, record) in self.records_of(filter).await? {
            if let Some(token) = recorded(&record, None) {
                revoked.entry(token.token_id).or_insert(record.timestamp);
            }
        }
        Ok(revoked)
    }

    /// Returns all records that match `filter`, with their positions, in order.
    async fn records_of(&self, filter: RecordFilter) -> Result<Vec<(i64, Record)>, CallError> {
        let (mut found, mut records) = (Vec::new(), RecordReader::new(self.engine.ledger.as_ref(), filter));
        while let Some(stored) = records.next().await? {
            found.push((stored.position, content_history::parse(&stored.text)?));
        }
        Ok(found)
    }
}

/// The token that a record of its issue, or of the run's creation, is about.
fn token_of(record: &Record) -> Option<RunToken> {
    let member = (record.tool == "run.create").then_some("token");
    let Recorded { token_id, permissions, expires_at } = recorded(record, member)?;
    Some(RunToken {
        token_id,
        permissions,
        issued_by: record.actor.clone(),
        created_at: record.timestamp.clone(),
        expires_at,
        revoked_at: None,
        last_used_at: None,
    })
}

fn recorded(record: &Record, member: Option<&str>) -> Option<Recorded> {
    let input = record.input.clone()?;
    let value = match member {
        Some(member) => input.get(member)?.clone(),
        None => serde_json::Value::Object(input),
    };
    serde_json::from_value(value).ok()
}
