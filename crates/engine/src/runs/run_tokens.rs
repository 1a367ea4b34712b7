//! The tokens of a run, as its records tell of them: without their secrets.

use std::collections::BTreeMap;

use ledger::{PageSize, RecordFilter, StoredRecord};
use model::{Permission, RUN_TOKEN_ACTOR, Record, RunId, TokenId};
use serde::{Deserialize, Serialize};

use crate::CallError;
use crate::engine::Engine;
use crate::history::content_history;
use crate::page::{Cursor, ListKey, Page};

/// Records that are read at a time.
const PAGE: u32 = 500;
/// How often the search for the last call of a token is continued. Each time, the ledger looks at a bounded number of records.
const MAX_SEARCHES: usize = 20;
/// The first record of a run, which has its first token.
const FIRST: u64 = 1;

/// A token of a run, without its secret.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunToken {
    /// The ID of the token.
    token_id: TokenId,
    /// What its holder may do in the run.
    permissions: Vec<Permission>,
    /// Who has issued it.
    issued_by: String,
    /// When it was issued, RFC 3339 UTC.
    created_at: String,
    /// When it expires; missing if never.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    /// When it was revoked; missing if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_at: Option<String>,
    /// The time of its last recorded call; missing if it has none among the newest records.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_used_at: Option<String>,
}

/// What a record says of a token.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    token_id: TokenId,
    #[serde(default)]
    permissions: Vec<Permission>,
    expires_at: Option<String>,
}

impl Engine {
    /// Returns a page of the tokens of a run, in the order in which they were issued.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_CLOSED` if the run is archived.
    pub async fn run_tokens(
        &self,
        run: &RunId,
        after: Option<Cursor>,
        limit: u32,
        list: &ListKey,
    ) -> Result<Page<RunToken>, CallError> {
        self.run(run).await?;
        self.check_not_archived(Some(run)).await?;
        let of_tool = |tool: &str| RecordFilter {
            run: Some(run.clone()),
            tool: Some(tool.to_owned()),
            ..RecordFilter::default()
        };
        let after = after.map(Cursor::position);
        let mut page = self.ledger.records(&of_tool("token.issue"), after, PageSize::rows(limit)).await?;
        if after.is_none()
            && let Some(first) = self.ledger.record(run, FIRST).await?
        {
            page.items.insert(0, first);
            if page.items.len() > limit as usize {
                (page.more, page.resume) = (true, None);
                page.items.truncate(limit as usize);
            }
        }
        let ledger::Page { items: found, more, resume } = page;
        let revoked = self.revocations(&of_tool("token.revoke")).await?;
        let mut items = Vec::with_capacity(found.len());
        for stored in found {
            let record = content_history::parse(&stored.text)?;
            let Some(mut token) = token_of(&record) else { continue };
            token.revoked_at = revoked.get(&token.token_id).cloned();
            token.last_used_at = self.last_use(run, &token.token_id).await?;
            items.push((stored.position, token));
        }
        Ok(Page::of(ledger::Page { items, more, resume }, list))
    }

    /// Returns when each revoked token was revoked.
    async fn revocations(&self, filter: &RecordFilter) -> Result<BTreeMap<TokenId, String>, CallError> {
        let (mut revoked, mut after) = (BTreeMap::new(), None);
        loop {
            let page = self.ledger.records(filter, after, PAGE.into()).await?;
            let next = next_of(&page);
            for stored in page {
                let record = content_history::parse(&stored.text)?;
                if let Some(token) = recorded(&record, None) {
                    revoked.entry(token.token_id).or_insert(record.timestamp);
                }
            }
            match next {
                Some(next) => after = Some(next),
                None => return Ok(revoked),
            }
        }
    }

    async fn last_use(&self, run: &RunId, token: &TokenId) -> Result<Option<String>, CallError> {
        let filter = RecordFilter {
            run: Some(run.clone()),
            actor: Some(format!("{RUN_TOKEN_ACTOR}{token}")),
            newest_first: true,
            ..RecordFilter::default()
        };
        let mut after = None;
        for _ in 0..MAX_SEARCHES {
            let page = self.ledger.records(&filter, after, PageSize::rows(1)).await?;
            if let Some(stored) = page.items.first() {
                return Ok(Some(content_history::parse(&stored.text)?.timestamp));
            }
            match next_of(&page) {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        Ok(None)
    }
}

fn next_of(page: &ledger::Page<StoredRecord>) -> Option<i64> {
    let last = page.items.last().map(|stored| stored.position);
    page.resume.or(last).filter(|_| page.more)
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
