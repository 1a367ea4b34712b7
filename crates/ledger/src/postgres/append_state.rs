//! The state that a group of appends depends on, read in few queries, because each is a round trip to the server.
//!
//! The heads of the runs are locked first, by a statement of their own: a statement does not see what was committed while it waited
//! for a lock. Everything else of a run that an append depends on is written only by transactions that have locked its head, except
//! for the revocation of operators, whose rows are locked too.

use std::collections::{HashMap, HashSet};

use model::{ApprovalId, ApprovalState, RunId, Sha256, TokenId, ToolCallId};

use super::connection::failed;
use super::fence::{FencedTx, WriterFence};
use super::positions;
use crate::chain::{AppendState, EntryRepetition};
use crate::packed::PreparedEntry;
use crate::run_head::{RunHead, select_head};
use crate::statement::{RowReader as _, damaged};
use crate::{Entry, LedgerError, Node, Result, RunTransition, TokenHolder, rows};

/// The heads of the runs `$1`, with those of the tokens `$4` that are revoked. One row for each existing call with the run `$2`
/// and the ID `$3`.
const HEADS: &str = select_head!(
    ", call.id, call.tool, call.input_sha256, call.has_reply, \
    (SELECT string_agg(token_id, ' ') FROM token WHERE token.run_no = run.run_no AND revoked AND token_id = ANY($4))",
    "LEFT JOIN (\
      SELECT call_run.run_no, supplied.id, first.tool, first.input_sha256, \
        EXISTS (SELECT FROM audit_record AS same JOIN call_reply ON call_reply.position = same.position \
          WHERE same.tool_call_id = supplied.id AND same.run_no = call_run.run_no \
          AND same.tool = first.tool AND same.input_sha256 = first.input_sha256) AS has_reply \
      FROM unnest($2::text[], $3::text[]) AS supplied (run_id, id) JOIN run AS call_run ON call_run.run_id = supplied.run_id \
      CROSS JOIN LATERAL (\
        SELECT tool, input_sha256 FROM audit_record \
        WHERE tool_call_id = supplied.id AND audit_record.run_no = call_run.run_no ORDER BY seq LIMIT 1) AS first\
    ) AS call ON call.run_no = run.run_no WHERE run_id = ANY($1)"
);
/// The tokens `$2` of the runs `$1`.
const TOKENS: &str = "SELECT token.run_no, token_id, revoked FROM token JOIN run ON run.run_no = token.run_no \
    WHERE run_id = ANY($1) AND token_id = ANY($2)";
/// The uploads `$2` of the runs `$1`.
const UPLOADS: &str = "SELECT upload.run_no, sha256 FROM upload JOIN run ON run.run_no = upload.run_no \
    WHERE run_id = ANY($1) AND sha256 = ANY($2)";
const PENDING: &str = "SELECT run_no, approval_id FROM approval WHERE approval_id = ANY($1) AND state = 'pending'";
/// The references of the runs `$1` to the objects `$2`.
const OBJECTS: &str = "SELECT o.run_no, object FROM object_reference o JOIN run ON run.run_no = o.run_no \
    WHERE run_id = ANY($1) AND object = ANY($2)";
/// Locks the operators' tokens `$1` against revocation, and selects whether they are revoked. A replaced token, whose end is its
/// expiry, is not. The condition is not in the `WHERE` clause, which would leave out, without a lock, what is not revoked yet.
const OPERATORS: &str = "SELECT secret_sha256, \
    revoked_at IS NOT NULL AND (expires_at IS NULL OR revoked_at <> expires_at) \
    FROM operator_token WHERE secret_sha256 = ANY($1) ORDER BY operator_no FOR SHARE";

/// The state of the database that a group of entries is appended to.
pub(crate) struct GroupState {
    pub(crate) heads: HashMap<RunId, RunHead>,
    node: Option<Node>,
    /// The first call with each client-supplied ID of the group.
    calls: HashMap<(i64, ToolCallId), FirstCall>,
    /// Those approvals that the group decides and that are pending.
    pending: HashSet<(i64, ApprovalId)>,
    /// Those tokens that the group requires and that are revoked.
    revoked: HashSet<(i64, TokenId)>,
    /// The runs of which the group has revoked every token.
    revoked_runs: HashSet<i64>,
    /// The revoked ones of the operators that the group requires.
    revoked_operators: HashSet<Sha256>,
    /// The tokens that the group revokes, and whether they are revoked already.
    to_revoke: HashMap<(i64, TokenId), bool>,
    /// Uploads of the group that are stored.
    uploads: HashSet<(i64, Sha256)>,
    /// Objects of the group to which its runs refer already.
    objects: HashSet<(i64, String)>,
    /// The positions of the next records.
    positions: std::vec::IntoIter<i64>,
    /// The position of the last record.
    pub(crate) position: i64,
}

struct FirstCall {
    tool: String,
    input_sha256: Sha256,
    has_reply: bool,
}

/// The tokens that must be valid, of runs and of operators.
fn required_tokens<'a>(entries: &[&'a Entry]) -> (Vec<&'a str>, Vec<&'a [u8]>) {
    let (mut tokens, mut operators): (Vec<&str>, Vec<&[u8]>) = (Vec::new(), Vec::new());
    for token in entries.iter().filter_map(|entry| entry.preconditions.token.as_ref()) {
        match &token.holder {
            TokenHolder::Run(token) => tokens.push(token.as_str()),
            TokenHolder::Operator(hash) => operators.push(hash.as_bytes()),
        }
    }
    tokens.sort_unstable();
    tokens.dedup();
    (tokens, operators)
}

impl GroupState {
    /// Locks the runs of `entries`, takes a position for each entry, and reads the state. Fails if this process must not write to the
    /// database.
    pub(crate) async fn read(fenced: &mut FencedTx<'_>, fence: &WriterFence, entries: &[&Entry]) -> Result<Self> {
        let mut runs: Vec<_> = entries.iter().map(|entry| &entry.draft.run_id).collect();
        runs.sort_unstable();
        runs.dedup();
        let positions = positions::lock_and_take(fenced, &runs, entries.len()).await?;
        let (call_runs, call_ids): (Vec<&str>, Vec<&str>) = entries
            .iter()
            .filter(|entry| entry.client_supplied_id)
            .map(|entry| (entry.draft.run_id.as_str(), entry.draft.tool_call_id.as_str()))
            .unzip();
        let (tokens, operators) = required_tokens(entries);
        let query = sqlx::query(HEADS)
            .bind(runs.iter().map(|run| run.as_str()).collect::<Vec<_>>())
            .bind(call_runs)
            .bind(call_ids)
            .bind(tokens);
        let found = query.fetch_all(fenced.connection()).await.map_err(failed)?;
        let mut state = Self {
            heads: HashMap::new(),
            node: fence.node().cloned(),
            calls: HashMap::new(),
            pending: HashSet::new(),
            revoked: HashSet::new(),
            revoked_runs: HashSet::new(),
            revoked_operators: HashSet::new(),
            to_revoke: HashMap::new(),
            uploads: HashSet::new(),
            objects: HashSet::new(),
            positions: positions.into_iter(),
            position: 0,
        };
        let [id, tool, input_sha256, has_reply, revoked] = std::array::from_fn(|place| RunHead::COLUMNS + place);
        for row in found {
            let head = RunHead::read(&row)?;
            if let Some(id) = row.maybe_text(id)? {
                let id = ToolCallId::parse(&id).map_err(|_| damaged("tool call ID"))?;
                let input_sha256 = rows::input_sha256(&row.bytes(input_sha256)?)?;
                let first = FirstCall { tool: row.text(tool)?, input_sha256, has_reply: row.bool(has_reply)? };
                state.calls.insert((head.run_no, id), first);
            }
            for id in row.maybe_text(revoked)?.unwrap_or_default().split_whitespace() {
                state.revoked.insert((head.run_no, TokenId::parse(id).map_err(|_| damaged("token ID"))?));
            }
            state.heads.insert(rows::run_id(&row, 0)?, head);
        }
        fence.check_heads(&runs, &state.heads)?;
        let decisions = entries.iter().filter_map(|entry| entry.approval_decision.as_ref());
        let decided: Vec<&str> = decisions.map(|decision| decision.approval_id.as_str()).collect();
        if !decided.is_empty() {
            for row in sqlx::query(PENDING).bind(decided).fetch_all(fenced.connection()).await.map_err(failed)? {
                let id = ApprovalId::parse(&row.text(1)?).map_err(|_| damaged("approval ID"))?;
                state.pending.insert((row.int(0)?, id));
            }
        }
        state.read_operators(fenced, operators).await?;
        state.read_revocations(fenced, entries).await?;
        state.read_uploads(fenced, entries).await?;
        state.read_objects(fenced, entries).await?;
        Ok(state)
    }

    async fn read_operators(&mut self, fenced: &mut FencedTx<'_>, required: Vec<&[u8]>) -> Result<()> {
        if required.is_empty() {
            return Ok(());
        }
        let query = sqlx::query(OPERATORS).bind(required);
        for row in query.fetch_all(fenced.connection()).await.map_err(failed)? {
            if row.bool(1)? {
                self.revoked_operators.insert(rows::sha256(&row.bytes(0)?)?);
            }
        }
        Ok(())
    }

    async fn read_revocations(&mut self, fenced: &mut FencedTx<'_>, entries: &[&Entry]) -> Result<()> {
        let revoking = entries.iter().filter_map(|entry| match &entry.run_change {
            Some(RunTransition::RevokeToken(token)) => Some((entry.draft.run_id.as_str(), token.as_str())),
            _ => None,
        });
        let (runs, tokens): (Vec<&str>, Vec<&str>) = revoking.unzip();
        if tokens.is_empty() {
            return Ok(());
        }
        let found = sqlx::query(TOKENS).bind(runs).bind(tokens).fetch_all(fenced.connection()).await.map_err(failed)?;
        for row in found {
            let id = TokenId::parse(&row.text(1)?).map_err(|_| damaged("token ID"))?;
            self.to_revoke.insert((row.int(0)?, id), row.bool(2)?);
        }
        Ok(())
    }

    async fn read_uploads(&mut self, fenced: &mut FencedTx<'_>, entries: &[&Entry]) -> Result<()> {
        let uploading = entries.iter().filter_map(|entry| {
            let upload = entry.upload.as_ref()?;
            Some((entry.draft.run_id.as_str(), upload.sha256.as_bytes().as_slice()))
        });
        let (runs, digests): (Vec<&str>, Vec<&[u8]>) = uploading.unzip();
        if digests.is_empty() {
            return Ok(());
        }
        let found =
            sqlx::query(UPLOADS).bind(runs).bind(digests).fetch_all(fenced.connection()).await.map_err(failed)?;
        for row in found {
            self.uploads.insert((row.int(0)?, rows::sha256(&row.bytes(1)?)?));
        }
        Ok(())
    }

    async fn read_objects(&mut self, fenced: &mut FencedTx<'_>, entries: &[&Entry]) -> Result<()> {
        let referring = entries
            .iter()
            .flat_map(|entry| entry.objects.iter().map(|object| (entry.draft.run_id.as_str(), object.name.as_str())));
        let (runs, objects): (Vec<&str>, Vec<&str>) = referring.unzip();
        if objects.is_empty() {
            return Ok(());
        }
        let query = sqlx::query(OBJECTS).bind(runs).bind(objects);
        for row in query.fetch_all(fenced.connection()).await.map_err(failed)? {
            self.objects.insert((row.int(0)?, row.text(1)?));
        }
        Ok(())
    }

    /// Adds entries that were appended, because later entries of the group must see them.
    pub(crate) fn add(&mut self, entries: &[PreparedEntry]) {
        for entry in entries {
            let Some(run_no) = self.heads.get(&entry.draft.run_id).map(|head| head.run_no) else { continue };
            if let Some(decision) = &entry.approval_decision
                && decision.state != ApprovalState::Pending
            {
                self.pending.remove(&(run_no, decision.approval_id.clone()));
            }
            if let Some(upload) = &entry.upload {
                self.uploads.insert((run_no, upload.sha256));
            }
            self.objects.extend(entry.objects.iter().map(|object| (run_no, object.name.clone())));
            let first = || FirstCall {
                tool: entry.draft.tool.clone(),
                input_sha256: entry.input_sha256,
                has_reply: entry.reply.is_some(),
            };
            self.calls.entry((run_no, entry.draft.tool_call_id.clone())).or_insert_with(first);
        }
    }
}

impl AppendState for GroupState {
    fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    fn head(&mut self, run: &RunId) -> Result<&mut RunHead> {
        self.heads.get_mut(run).ok_or(LedgerError::NoSuchRun)
    }

    fn is_revoked(&mut self, run: &RunId, token: &TokenHolder) -> Result<bool> {
        let run_no = self.head(run)?.run_no;
        Ok(match token {
            TokenHolder::Run(token) => {
                self.revoked_runs.contains(&run_no) || self.revoked.contains(&(run_no, token.clone()))
            }
            TokenHolder::Operator(hash) => self.revoked_operators.contains(hash),
        })
    }

    fn earlier_call(&mut self, entry: &Entry, run_no: i64) -> Result<Option<EntryRepetition>> {
        let first = self.calls.get(&(run_no, entry.draft.tool_call_id.clone()));
        Ok(first.map(|first| {
            if (&first.tool, first.input_sha256) == (&entry.draft.tool, entry.input_sha256) {
                EntryRepetition::Same { has_reply: first.has_reply }
            } else {
                EntryRepetition::Other
            }
        }))
    }

    fn is_pending(&mut self, approval: &ApprovalId, run_no: i64) -> Result<bool> {
        Ok(self.pending.contains(&(run_no, approval.clone())))
    }

    fn find_token(&mut self, run: &RunId, token: &TokenId) -> Result<Option<bool>> {
        let run_no = self.head(run)?.run_no;
        let found = self.to_revoke.get(&(run_no, token.clone())).copied();
        Ok(found.map(|is_revoked| is_revoked || self.revoked_runs.contains(&run_no)))
    }

    fn revoke(&mut self, run: &RunId, token: Option<&TokenId>) -> Result<()> {
        let run_no = self.head(run)?.run_no;
        let Some(token) = token else {
            self.revoked_runs.insert(run_no);
            return Ok(());
        };
        let key = (run_no, token.clone());
        self.revoked.insert(key.clone());
        self.to_revoke.insert(key, true);
        Ok(())
    }

    fn has_upload(&mut self, run_no: i64, sha256: &Sha256) -> Result<bool> {
        Ok(self.uploads.contains(&(run_no, *sha256)))
    }

    fn has_object(&mut self, run_no: i64, object: &str) -> Result<bool> {
        Ok(self.objects.contains(&(run_no, object.to_owned())))
    }

    fn next_position(&mut self) -> Result<i64> {
        let next = self.positions.next().ok_or_else(|| LedgerError::Internal("more records than positions".into()))?;
        self.position = next;
        Ok(next)
    }
}
