//! The heads of recently used runs, cached between transactions, and the queries of an append.

use std::collections::{HashMap, HashSet};

use model::{ApprovalId, RunId, Sha256, TokenId};
use rusqlite::{Connection, OptionalExtension as _, ToSql, params};

use super::connection::{execute, failed, fetch, write_rows};
use crate::chain::{self, AppendState, EntryRepetition, LAST_POSITION};
use crate::entry_rows::{EntryRows, head_rows};
use crate::packed::PreparedEntry;
use crate::rows;
use crate::run_head::{RunHead, select_head};
use crate::{Appended, Entry, LedgerError, Node, Result, TokenHolder};

const FIRST_CALL: &str =
    "SELECT tool, input_sha256 FROM audit_record WHERE tool_call_id = ?1 AND run_no = ?2 ORDER BY seq LIMIT 1";
const HAS_REPLY: &str = "SELECT 1 FROM audit_record a JOIN call_reply c ON c.position = a.position \
    WHERE a.tool_call_id = ?1 AND a.run_no = ?2 AND a.tool = ?3 AND a.input_sha256 = ?4";
const IS_REVOKED: &str = "SELECT 1 FROM token WHERE run_no = ?1 AND token_id = ?2 AND revoked";
/// A replaced token, whose end is its expiry, is not revoked.
const IS_OPERATOR_REVOKED: &str = "SELECT 1 FROM operator_token WHERE secret_sha256 = ?1 AND revoked_at IS NOT NULL \
    AND (expires_at IS NULL OR revoked_at <> expires_at)";
const TOKEN_STATE: &str = "SELECT revoked FROM token WHERE run_no = ?1 AND token_id = ?2";
const HAS_UPLOAD: &str = "SELECT 1 FROM upload WHERE run_no = ?1 AND sha256 = ?2";
const HAS_OBJECT: &str = "SELECT 1 FROM object_reference WHERE run_no = ?1 AND object = ?2";
const IS_PENDING: &str = "SELECT 1 FROM approval WHERE approval_id = ?1 AND run_no = ?2 AND state = 'pending'";

/// Maximum number of cached runs.
const MAX_RUNS: usize = 4096;

/// The last position, and the heads of the runs that were used since the cache was last cleared.
pub(crate) struct HeadCache {
    runs: HashMap<RunId, CachedRun>,
    /// The position of the last record.
    pub(crate) position: i64,
}

struct CachedRun {
    head: RunHead,
    /// Tokens that are not revoked.
    valid_tokens: HashSet<TokenId>,
}

/// The state of an append: the cache, and the connection for what is not cached.
struct Appending<'c> {
    connection: &'c Connection,
    node: Option<&'c Node>,
    cache: &'c mut HeadCache,
}

impl HeadCache {
    /// Reads the last position. Called after the database was opened or a transaction failed.
    pub(crate) fn load(connection: &Connection) -> Result<Self> {
        let position = connection.query_row(LAST_POSITION, [], |row| row.get(0)).map_err(failed)?;
        Ok(Self { runs: HashMap::new(), position })
    }

    /// Appends `entries`, all or none. After an error, some rows may have been written: the transaction must be rolled back.
    pub(crate) fn append(
        &mut self,
        connection: &Connection,
        node: Option<&Node>,
        entries: &[PreparedEntry],
    ) -> Result<Appended> {
        let mut rows = EntryRows::new();
        let appended = chain::append(&mut Appending { connection, node, cache: self }, entries, &mut rows)?;
        for rows in rows.tables() {
            write_rows(connection, rows).map_err(failed)?;
        }
        for statement in rows.seal_zones().iter().chain(&rows.changes) {
            let changed = execute(connection, statement.sql, &statement.params).map_err(failed)?;
            if let Some(check) = statement.check.as_ref().filter(|_| changed == 0) {
                return Err(check.failed());
            }
        }
        Ok(appended)
    }

    /// Writes the heads that changed.
    pub(crate) fn store(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        for rows in head_rows(self.runs.values().map(|run| &run.head)) {
            write_rows(connection, &rows)?;
        }
        for run in self.runs.values_mut() {
            (run.head.changed, run.head.state_changed) = (false, false);
        }
        Ok(())
    }

    /// Removes a run before a statement changes its rows. Its head must have been stored.
    pub(crate) fn remove(&mut self, run: &RunId) {
        self.runs.remove(run);
    }

    /// Clears the cache if it has grown too large. The heads must have been stored.
    pub(crate) fn shrink(&mut self) {
        if self.runs.len() > MAX_RUNS {
            self.runs = HashMap::new();
        }
    }
}

/// Returns whether a query has a row.
fn exists(connection: &Connection, sql: &str, params: &[&dyn ToSql]) -> Result<bool> {
    connection.prepare_cached(sql).and_then(|mut query| query.exists(params)).map_err(failed)
}

impl Appending<'_> {
    fn run(&mut self, run: &RunId) -> Result<&mut CachedRun> {
        if !self.cache.runs.contains_key(run) {
            let sql = select_head!("WHERE run_id = $1");
            let found = fetch(self.connection, sql, &[run.as_str().into()], RunHead::read)?;
            let head = found.into_iter().next().ok_or(LedgerError::NoSuchRun)?;
            self.cache.runs.insert(run.clone(), CachedRun { head, valid_tokens: HashSet::new() });
        }
        self.cache.runs.get_mut(run).ok_or(LedgerError::NoSuchRun)
    }
}

impl AppendState for Appending<'_> {
    fn node(&self) -> Option<&Node> {
        self.node
    }

    fn head(&mut self, run: &RunId) -> Result<&mut RunHead> {
        self.run(run).map(|run| &mut run.head)
    }

    fn is_revoked(&mut self, run: &RunId, token: &TokenHolder) -> Result<bool> {
        let connection = self.connection;
        let token = match token {
            TokenHolder::Run(token) => token,
            TokenHolder::Operator(hash) => {
                let mut revoked = connection.prepare_cached(IS_OPERATOR_REVOKED).map_err(failed)?;
                return revoked.exists(params![hash.as_bytes()]).map_err(failed);
            }
        };
        let run = self.run(run)?;
        if run.valid_tokens.contains(token) {
            return Ok(false);
        }
        let is_revoked = exists(connection, IS_REVOKED, params![run.head.run_no, token.as_str()])?;
        if !is_revoked {
            run.valid_tokens.insert(token.clone());
        }
        Ok(is_revoked)
    }

    fn earlier_call(&mut self, entry: &Entry, run_no: i64) -> Result<Option<EntryRepetition>> {
        let (id, tool, input) =
            (entry.draft.tool_call_id.as_str(), &entry.draft.tool, rows::input_bytes(&entry.input_sha256));
        let mut first = self.connection.prepare_cached(FIRST_CALL).map_err(failed)?;
        let found: Option<(String, Vec<u8>)> =
            first.query_row(params![id, run_no], |row| Ok((row.get(0)?, row.get(1)?))).optional().map_err(failed)?;
        let Some((found_tool, found_input)) = found else { return Ok(None) };
        if found_tool != *tool || found_input != input {
            return Ok(Some(EntryRepetition::Other));
        }
        let has_reply = exists(self.connection, HAS_REPLY, params![id, run_no, tool, input])?;
        Ok(Some(EntryRepetition::Same { has_reply }))
    }

    fn is_pending(&mut self, approval: &ApprovalId, run_no: i64) -> Result<bool> {
        exists(self.connection, IS_PENDING, params![approval.as_str(), run_no])
    }

    fn find_token(&mut self, run: &RunId, token: &TokenId) -> Result<Option<bool>> {
        let (connection, run_no) = (self.connection, self.run(run)?.head.run_no);
        let mut state = connection.prepare_cached(TOKEN_STATE).map_err(failed)?;
        state.query_row(params![run_no, token.as_str()], |row| row.get(0)).optional().map_err(failed)
    }

    fn revoke(&mut self, run: &RunId, token: Option<&TokenId>) -> Result<()> {
        let valid = &mut self.run(run)?.valid_tokens;
        match token {
            Some(token) => drop(valid.remove(token)),
            None => valid.clear(),
        }
        Ok(())
    }

    fn has_upload(&mut self, run_no: i64, sha256: &Sha256) -> Result<bool> {
        let mut upload = self.connection.prepare_cached(HAS_UPLOAD).map_err(failed)?;
        upload.exists(params![run_no, sha256.as_bytes()]).map_err(failed)
    }

    fn has_object(&mut self, run_no: i64, object: &str) -> Result<bool> {
        exists(self.connection, HAS_OBJECT, params![run_no, object])
    }

    fn next_position(&mut self) -> Result<i64> {
        self.cache.position += 1;
        Ok(self.cache.position)
    }
}
