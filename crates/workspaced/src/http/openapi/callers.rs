//! Which tokens each operation accepts, as its description and as the extensions `x-scopes` and `x-run-token`.

use model::Scope;
use serde_json::{Value, json};

use crate::http::auth::scopes::{Accepts as _, Auditors, Deciders, Everyone, MetricsReaders, Orchestrators, Reviewers};
use crate::http::auth::scopes_for;
use crate::http::openapi::tool_operations::tool_of;

/// Who may call an operation.
struct Callers {
    /// The scopes of which an operator needs one.
    scopes: &'static [Scope],
    /// Whether tokens of the run may call it.
    run_token: bool,
}

/// Adds to `operation` who may call it.
pub(super) fn add(operation: &mut Value) {
    let Some(Callers { scopes, run_token }) = operation["operationId"].as_str().and_then(callers) else { return };
    let names: Vec<_> = scopes.iter().map(|scope| scope.as_str()).collect();
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    let operators = (!names.is_empty()).then(|| format!("operators with the scope {}", quoted.join(" or ")));
    let callers: Vec<_> = operators.into_iter().chain(run_token.then(|| "tokens of the run".to_owned())).collect();
    let sentence = format!("Callers: {}.", callers.join("; "));
    let description = match operation["description"].as_str() {
        Some(text) if !text.is_empty() => format!("{text}\n\n{sentence}"),
        Some(_) | None => sentence,
    };
    operation["description"] = Value::from(description);
    operation["x-scopes"] = json!(names);
    operation["x-run-token"] = Value::from(run_token);
}

/// Returns who may call an operation; `None` if it needs no token.
#[expect(clippy::too_many_lines, reason = "a table of all operations")]
fn callers(operation_id: &str) -> Option<Callers> {
    let (scopes, run_token) = match operation_id {
        "getHealth"
        | "getReadiness"
        | "getOpenApiDocument"
        | "getDocs"
        | "getResourceMetadata"
        | "getMcpResourceMetadata"
        | "listProblems"
        | "getProblem" => return None,
        "createRun"
        | "updateRun"
        | "closeRun"
        | "stopRun"
        | "mergeRun"
        | "deleteRun"
        | "putArchive"
        | "issueToken"
        | "revokeToken"
        | "createOperator"
        | "listOperators"
        | "revokeOperator"
        | "rotateOperatorToken"
        | "listWebhooks"
        | "listDeliveries"
        | "settleDrift"
        | "redeliver" => (Orchestrators::SCOPES, false),
        "getArchive"
        | "getBundle"
        | "putFile"
        | "deleteFile"
        | "executeBatch"
        | "callInFormat"
        | "explainPolicy"
        | "getDrift"
        | "listTools"
        | "getLimits"
        | "appendEvent"
        | "appendEvents"
        | "applyChangeset"
        | "nextCommand"
        | "reportCommand"
        | "putUploadedArtifact" => (Orchestrators::SCOPES, true),
        "approveCall" | "denyCall" | "commentOnRun" => (Deciders::SCOPES, false),
        "listNodes" | "getStats" => (Auditors::SCOPES, false),
        "getFile" => (Auditors::SCOPES, true),
        "listRuns"
        | "listApprovals"
        | "getApproval"
        | "readApprovalFile"
        | "listTokens"
        | "getRunUsage"
        | "compareRuns"
        | "listAudit"
        | "streamAudit"
        | "exportAudit"
        | "getCheckpoint"
        | "getCheckpointKey"
        | "getCheckpointKeyChanges"
        | "proveConsistency" => (Reviewers::SCOPES, false),
        "getRun"
        | "getToolCall"
        | "getArtifact"
        | "getPatch"
        | "listRunAudit"
        | "verifyRunAudit"
        | "listChanges"
        | "proveInclusion"
        | "getReport"
        | "getUploadedArtifact" => (Reviewers::SCOPES, true),
        "getOperator" => (Everyone::SCOPES, false),
        "getMetrics" => (MetricsReaders::SCOPES, false),
        "sendMcpMessage" => (&[][..], true),
        tool => (scopes_for(Some(tool_of(tool)?)), true),
    };
    Some(Callers { scopes, run_token })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_that_needs_a_token_says_whose() {
        let document: Value = serde_json::from_str(&crate::http::openapi_text(crate::OpenApiVersion::V3_1)).unwrap();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let is_open = operation["security"] == json!([{}]);
                assert_eq!(operation["x-scopes"].is_array(), !is_open, "{method} {path}: add it to `callers`");
            }
        }
    }
}
