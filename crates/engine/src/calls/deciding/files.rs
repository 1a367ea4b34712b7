//! The files that a call which waits for a person would change, for that person: what the diff leaves out around its lines.

use async_recursion::async_recursion as boxed;
use model::{ApprovalId, Code, Permission, Refusal};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::CallError;
use crate::call::record::RecordedError;
use crate::call::{Answer, Call};
use crate::caller::Caller;
use crate::calls::Calls;
use crate::tools::read_file;

/// Which lines of a file of an approval to read.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ApprovalFileQuery {
    /// One of the approval's files.
    #[param(example = "package-lock.json")]
    path: String,
    /// The first line to return, counted from 1.
    #[param(minimum = 1, default = 1)]
    start_line: Option<u64>,
    /// Lines to return, at most 1,000.
    #[param(minimum = 1, default = 200)]
    max_lines: Option<u64>,
}

impl Calls {
    /// Reads lines of a file that the call of an approval would change, as the file was when the call was made: the text that the
    /// approval's diff is against. It is a `read_file` of the caller, who may read no other file by it, and is judged and recorded as such.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND` if there is no such approval, or it has no such file; those of `read_file`.
    #[boxed]
    pub async fn read_approval_file(
        &self,
        id: &ApprovalId,
        caller: Caller,
        query: ApprovalFileQuery,
    ) -> Result<Answer, RecordedError> {
        let (run, seq) = self.file_of_approval(id, &query.path).await.map_err(RecordedError::left_out)?;
        let mut members = Map::new();
        members.insert("path".to_owned(), json!(query.path));
        members.insert("format".to_owned(), json!("raw"));
        members.insert("atSeq".to_owned(), json!(seq));
        members.extend(query.start_line.map(|line| ("startLine".to_owned(), Value::from(line))));
        members.extend(query.max_lines.map(|lines| ("maxLines".to_owned(), Value::from(lines))));
        let caller = Caller { permissions: [Permission::FileRead].into(), ..caller };
        let (call, members) = Call::of(&run, caller, &read_file::TOOL, members);
        self.call(call, members).await
    }

    /// Returns the run of an approval, and the record of its call.
    async fn file_of_approval(&self, id: &ApprovalId, path: &str) -> Result<(model::RunId, u64), CallError> {
        let approval = self.engine.approval(id).await?;
        if !approval.files.iter().any(|file| file.path.as_str() == path) {
            let message = format!("the approval has no file `{}`", model::excerpt(path, 300));
            return Err(Refusal::new(Code::NotFound, message, "Give one of the paths in its `files`.").into());
        }
        let call = self.engine.ledger.call(&approval.run_id, &approval.tool_call_id).await?;
        let call = call.ok_or_else(|| CallError::Internal("an approval has no call".into()))?;
        Ok((approval.run_id, call.seq))
    }
}
