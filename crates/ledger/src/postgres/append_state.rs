//! What a group of appends reads before it writes: all of it in one or two queries, because each is a round trip to the server.

use std::collections::{HashMap, HashSet};

use model::{ApprovalId, RunId, Sha256, TokenId, ToolCallId};

use super::convert::failed;
use super::fence::{Fence, FencedTx};
use crate::backend::{RowReader as _, damaged};
use crate::chain::{AppendState, EarlierCall, RunHead, select_head};
use crate::{Entry, LedgerError, Result, rows};

/// The heads of the runs `$1`; with each, which of the tokens `$4` are revoked; one row for each call of `$2` (run), `$3` (ID)
/// that exists. The writer's lock keeps other writers out.
const HEADS: &str = select_head!(
    ", call.id, call.tool, call.input_sha256, call.is_answered, \
    (SELECT string_agg(token_id, ' ') FROM token WHERE token.run_no = run.run_no AND revoked AND token_id = ANY($4))",
    "LEFT JOIN (\
      SELECT claimant.run_no, claim.id, first.tool, first.input_sha256, \
        EXISTS (SELECT FROM audit_record AS again JOIN call_reply ON call_reply.position = again.position \
          WHERE again.tool_call_id = claim.id AND again.run_no = claimant.run_no \
          AND again.tool = first.tool AND again.input_sha256 = first.input_sha256) AS is_answered \
      FROM unnest($2::text[], $3::text[]) AS claim (run_id, id) JOIN run AS claimant ON claimant.run_id = claim.run_id \
      CROSS JOIN LATERAL (\
        SELECT tool, input_sha256 FROM audit_record \
        WHERE tool_call_id = claim.id AND audit_record.run_no = claimant.run_no ORDER BY seq LIMIT 1) AS first\
    ) AS call ON call.run_no = run.run_no WHERE run_id = ANY($1)"
);
const PENDING: &str = "SELECT run_no, approval_id FROM approval WHERE approval_id = ANY($1) AND state = 'pending'";

/// The state that a group of entries is appended to.
pub(crate) struct GroupState {
    pub(crate) heads: HashMap<RunId, RunHead>,
    /// The first call under each ID that clients of the group supplied.
    calls: HashMap<(i64, ToolCallId), FirstCall>,
    /// The pending ones of the approvals that the group decides.
    pending: HashSet<(i64, ApprovalId)>,
    /// The revoked ones of the tokens that the group requires.
    revoked: HashSet<(i64, TokenId)>,
    /// The position of the last record.
    pub(crate) position: i64,
}

struct FirstCall {
    tool: String,
    input_sha256: Sha256,
    is_answered: bool,
}

impl GroupState {
    /// Reads the state for `entries`, to be appended after `position`. Fails if this process must not write to the database.
    pub(crate) async fn read(
        fenced: &mut FencedTx<'_>,
        fence: &Fence,
        entries: &[&Entry],
        position: i64,
    ) -> Result<Self> {
        let mut runs: Vec<_> = entries.iter().map(|entry| &entry.draft.run_id).collect();
        runs.sort_unstable();
        runs.dedup();
        let (claiming, claimed): (Vec<&str>, Vec<&str>) = entries
            .iter()
            .filter(|entry| entry.client_supplied_id)
            .map(|entry| (entry.draft.run_id.as_str(), entry.draft.tool_call_id.as_str()))
            .unzip();
        let required = entries.iter().filter_map(|entry| entry.preconditions.token.as_ref());
        let mut tokens: Vec<&str> = required.map(|token| token.token_id.as_str()).collect();
        tokens.sort_unstable();
        tokens.dedup();
        let query = sqlx::query(HEADS)
            .bind(runs.iter().map(|run| run.as_str()).collect::<Vec<_>>())
            .bind(claiming)
            .bind(claimed)
            .bind(tokens);
        let found = query.fetch_all(fenced.connection()).await.map_err(failed)?;
        let mut state = Self {
            heads: HashMap::new(),
            calls: HashMap::new(),
            pending: HashSet::new(),
            revoked: HashSet::new(),
            position,
        };
        for row in found {
            let head = RunHead::read(&row)?;
            if let Some(id) = row.maybe_text(15)? {
                let id = ToolCallId::parse(&id).map_err(|_| damaged("tool call ID"))?;
                let input_sha256 = rows::sha256(&row.bytes(17)?)?;
                let first = FirstCall { tool: row.text(16)?, input_sha256, is_answered: row.bool(18)? };
                state.calls.insert((head.run_no, id), first);
            }
            for id in row.maybe_text(19)?.unwrap_or_default().split_whitespace() {
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
        Ok(state)
    }

    /// Updates what the group has read by what it appends, which later entries of the group must see.
    pub(crate) fn appended(&mut self, entries: &[Entry]) {
        for entry in entries {
            let Some(run_no) = self.heads.get(&entry.draft.run_id).map(|head| head.run_no) else { continue };
            if let Some(decision) = &entry.approval_decision {
                self.pending.remove(&(run_no, decision.approval_id.clone()));
            }
            let first = || FirstCall {
                tool: entry.draft.tool.clone(),
                input_sha256: entry.input_sha256,
                is_answered: entry.reply.is_some(),
            };
            self.calls.entry((run_no, entry.draft.tool_call_id.clone())).or_insert_with(first);
        }
    }
}

impl AppendState for GroupState {
    fn head(&mut self, run: &RunId) -> Result<&mut RunHead> {
        self.heads.get_mut(run).ok_or(LedgerError::NoSuchRun)
    }

    fn is_revoked(&mut self, run: &RunId, token: &TokenId) -> Result<bool> {
        let run_no = self.head(run)?.run_no;
        Ok(self.revoked.contains(&(run_no, token.clone())))
    }

    fn earlier_call(&mut self, entry: &Entry, run_no: i64) -> Result<Option<EarlierCall>> {
        let first = self.calls.get(&(run_no, entry.draft.tool_call_id.clone()));
        Ok(first.map(|first| {
            if (&first.tool, first.input_sha256) == (&entry.draft.tool, entry.input_sha256) {
                EarlierCall::Same { is_answered: first.is_answered }
            } else {
                EarlierCall::Other
            }
        }))
    }

    fn is_pending(&mut self, approval: &ApprovalId, run_no: i64) -> Result<bool> {
        Ok(self.pending.contains(&(run_no, approval.clone())))
    }

    fn next_position(&mut self) -> i64 {
        self.position += 1;
        self.position
    }
}
