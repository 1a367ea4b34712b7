//! Artifacts that callers upload for events: test logs, transcripts and the like, stored by their digest.

use async_recursion::async_recursion as boxed;
use ledger::{Appended, Entry, UploadedContent};
use model::{Code, Draft, MAX_UPLOAD_BYTES, Permission, Refusal, RunId, Sha256};
use serde::Serialize;
use serde_json::json;

use super::{lacks_permission, new_entry};
use crate::CallError;
use crate::call::record::{RecordedError, UPLOAD};
use crate::caller::Caller;
use crate::calls::Calls;
use crate::clock::{new_tool_call_id, now};
use crate::engine::NotRecorded;

/// An uploaded artifact.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UploadedArtifact {
    /// Always true.
    #[schema(example = true)]
    pub ok: bool,
    /// How events and records name it.
    #[schema(
        example = "artifact://issue-4711/sha256/9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    )]
    pub uri: String,
    /// Its SHA-256.
    pub sha256: Sha256,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The number of the upload's record. Missing if the run had the artifact before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The hash of the upload's record. Missing if the run had the artifact before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_hash: Option<Sha256>,
}

impl Calls {
    /// Checks before the body is read that the caller may upload artifacts of the run.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`, recorded; `RUN_NOT_FOUND`.
    #[boxed]
    pub async fn admit_upload(&self, run: &RunId, caller: &Caller) -> Result<(), RecordedError> {
        if !caller.permissions.contains(&Permission::EventAppend) {
            return Err(self.record_refusal(run, caller, UPLOAD, lacks_permission()).await);
        }
        // Also closes a run whose time is over.
        self.engine.run(run).await.map(drop).map_err(RecordedError::left_out)
    }

    /// Stores an artifact under its digest.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` if the digest is another, `POLICY_DENIED_SECRET` if it contains a credential, `RUN_CLOSED`,
    /// `QUOTA_EXCEEDED`. Refusals are recorded.
    #[boxed]
    pub async fn store_upload(
        &self,
        run: &RunId,
        caller: &Caller,
        digest: Sha256,
        bytes: Vec<u8>,
    ) -> Result<UploadedArtifact, RecordedError> {
        let stored = async {
            let size_bytes = bytes.len() as u64;
            if size_bytes > MAX_UPLOAD_BYTES {
                return Err(too_large(size_bytes).into());
            }
            let bytes =
                self.engine.blocking(move || check(digest, &bytes).map(|()| bytes).map_err(CallError::from)).await?;
            let uri = format!("artifact://{run}/sha256/{digest}");
            let mut draft = Draft::new(run.clone(), caller.actor.clone(), UPLOAD, new_tool_call_id(), now());
            draft.artifact_uris = vec![uri.clone()];
            draft.input = json!({ "sha256": digest, "sizeBytes": size_bytes }).as_object().cloned();
            let upload = Some(UploadedContent { sha256: digest, bytes });
            let entry = Entry { upload, ..new_entry(caller, draft, digest, size_bytes) };
            let record = match self.engine.record(vec![entry]).await {
                Ok(records) => records.into_iter().next(),
                Err(NotRecorded::Rejected(Appended::Unchanged)) => None,
                Err(error) => return Err(error.into()),
            };
            let (seq, head_hash) = (record.as_ref().map(|record| record.seq), record.and_then(|record| record.hash));
            Ok(UploadedArtifact { ok: true, uri, sha256: digest, size_bytes, seq, head_hash })
        };
        self.or_record_refusal(run, caller, UPLOAD, stored.await).await
    }

    /// Records that an upload was refused, for instance because of its size.
    #[boxed]
    pub async fn refuse_upload(&self, run: &RunId, caller: &Caller, refusal: Refusal) -> RecordedError {
        self.record_refusal(run, caller, UPLOAD, refusal).await
    }

    /// Returns an uploaded artifact.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`, `NOT_FOUND`.
    #[boxed]
    pub async fn uploaded_artifact(&self, run: &RunId, digest: &Sha256) -> Result<Vec<u8>, CallError> {
        if let Some(bytes) = self.engine.ledger.upload(run, digest).await? {
            if Sha256::of(&bytes) != *digest {
                return Err(CallError::Internal("a stored upload does not have its digest".into()));
            }
            return Ok(bytes);
        }
        self.engine.known_run(run).await?;
        let hint = "The records of the tool `artifact.upload` list the run's uploads.";
        Err(Refusal::new(Code::NotFound, format!("the run has no uploaded artifact {digest}"), hint).into())
    }
}

/// Checks the digest, and that the content has no credential.
fn check(digest: Sha256, bytes: &[u8]) -> Result<(), Refusal> {
    let actual = Sha256::of(bytes);
    if actual != digest {
        let message = format!("the body's SHA-256 is {actual}, not {digest}");
        return Err(Refusal::invalid(message, "Send the whole content, under its own SHA-256."));
    }
    match model::credential_in(bytes) {
        None => Ok(()),
        Some(what) => Err(Refusal::new(
            Code::PolicyDeniedSecret,
            format!("the artifact contains a credential: {what}"),
            "Remove the credential, and upload the rest.",
        )
        .with_details(|details| details.reasons = vec![format!("secret:{what}")])),
    }
}

/// The refusal of an artifact of more than 16 MiB.
pub fn too_large(actual: u64) -> Refusal {
    let message = format!("an uploaded artifact has at most {MAX_UPLOAD_BYTES} bytes; this one has {actual} or more");
    Refusal::new(Code::BodyTooLarge, message, "Upload a part of it, or compress it.")
        .with_details(|details| (details.limit, details.actual) = (Some(MAX_UPLOAD_BYTES), Some(actual)))
}
