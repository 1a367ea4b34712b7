//! Tool calls, alone and in batches.

use async_recursion::async_recursion as boxed;
use model::{RunId, Sha256, ToolCallId};
use reqwest::{Method, header};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::problem::Error;
use crate::request::{Repeat, call_header, into_text, new_id, read, sha256_header, with_id};
use crate::transport::Client;

/// The answer of a tool call in the text view, which is made for models.
#[derive(Clone, Debug)]
pub struct TextAnswer {
    /// What the call returned.
    pub text: String,
    /// The call.
    pub tool_call_id: Option<ToolCallId>,
    /// The number of the call's record.
    pub seq: Option<u64>,
    /// The version of the file, where the call is about a single one.
    pub sha256: Option<Sha256>,
}

/// Tool calls to execute in order.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Batch {
    /// The calls, at most 100.
    pub calls: Vec<BatchCall>,
    /// Whether to skip the remaining calls after one that does not succeed.
    pub stop_on_error: bool,
    /// Whether to execute all of the calls or none.
    pub atomic: bool,
}

/// One call of a batch.
#[derive(Clone, Debug, Serialize)]
pub struct BatchCall {
    /// The tool.
    pub tool: String,
    /// Its input.
    pub input: Map<String, Value>,
}

/// The results of a batch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchAnswer {
    /// Whether every call succeeded and none was skipped.
    pub ok: bool,
    /// The results, in the order of the calls.
    pub results: Vec<BatchResult>,
    /// Number of calls that were skipped.
    pub skipped: usize,
    /// For a refused atomic batch: the index of the call that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_call: Option<usize>,
}

/// The result of one call of a batch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BatchResult {
    /// The tool.
    pub tool: String,
    /// The HTTP status that the call would have had on its own.
    pub status: u16,
    /// The answer, or the problem document of a refusal.
    pub answer: Value,
}

impl Client {
    /// Calls a tool with an input, such as [`serde_json::json!`] or an own type, and returns its answer.
    ///
    /// ```no_run
    /// # async fn example(client: workspaced_client::Client, run: workspaced_client::RunId) -> Result<(), workspaced_client::Error> {
    /// #[derive(serde::Deserialize)]
    /// #[serde(rename_all = "camelCase")]
    /// struct ReadFile {
    ///     content: String,
    ///     total_lines: u64,
    /// }
    /// let read: ReadFile = client.call(&run, "read_file", &serde_json::json!({"path": "src/main.rs"})).await?;
    /// println!("{} lines\n{}", read.total_lines, read.content);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`]. A call that waits for its approval is [`Error::Problem`] with the code
    /// `APPROVAL_REQUIRED` and an [`approval_id`](crate::Problem::approval_id).
    pub async fn call<I: Serialize, O: DeserializeOwned>(
        &self,
        run: &RunId,
        tool: &str,
        input: &I,
    ) -> Result<O, Error> {
        let input = with_id(input, "toolCallId", new_id("tc_"))?;
        let request = self.request(Method::POST, ["v1", "runs", run.as_str(), "tools", tool])?;
        request.json(&input).repeat(repeat_of(tool)).answer(self).await
    }

    /// Calls a tool and returns its answer in the text view.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    pub async fn call_as_text<I: Serialize>(&self, run: &RunId, tool: &str, input: &I) -> Result<TextAnswer, Error> {
        let input = with_id(input, "toolCallId", new_id("tc_"))?;
        let request = self.request(Method::POST, ["v1", "runs", run.as_str(), "tools", tool])?;
        let request = request.header(header::ACCEPT, "text/plain")?.json(&input).repeat(repeat_of(tool));
        let response = request.send(self).await?;
        let seq = response.headers().get("workspaced-seq").and_then(|seq| seq.to_str().ok()?.parse().ok());
        let (call, sha256) = (call_header(&response, "workspaced-call"), sha256_header(&response, "workspaced-sha256"));
        let text = into_text(read(response, self.max_answer_bytes).await?)?;
        Ok(TextAnswer { text, tool_call_id: call, seq, sha256 })
    }

    /// Executes several tool calls in one request. A call that is refused does not fail the request, unless it is atomic.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn batch(&self, run: &RunId, batch: &Batch) -> Result<BatchAnswer, Error> {
        let mut batch = batch.clone();
        for call in &mut batch.calls {
            call.input.entry("toolCallId").or_insert_with(|| Value::from(new_id("tc_")));
        }
        let request = self.request(Method::POST, ["v1", "runs", run.as_str(), "batch"])?;
        request.json(&batch).answer(self).await
    }
}

fn repeat_of(tool: &str) -> Repeat {
    if tool == "run_command" { Repeat::IfNotRecorded } else { Repeat::Always }
}
