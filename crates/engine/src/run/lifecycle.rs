//! Records of operations on a run that are not tool calls. Each is appended together with the change that it records.

use std::collections::BTreeMap;

use ledger::{Entry, Expiry, RunTransition};
use model::{
    ARCHIVE_TOOL, Draft, ForkedFrom, ImportReport, Run, RunId, Sha256, Source, Token, TokenId, ToolCallId,
    canonical_json, redact_members,
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use workspace::{ChainPoint, ImportedRun, RecordedBase};

use crate::caller::{Caller, RequestIds};
use crate::clock::{new_tool_call_id, now};

/// The tool in the records of artifacts that were put into the object store.
pub(crate) const KEEP_ARTIFACTS: &str = "run.keep_artifacts";
/// The actor of what the service does by itself.
const SERVICE: &str = "service";
/// The largest policy that a record repeats, in bytes of canonical JSON. Of a larger one it has the hash only.
const MAX_POLICY_BYTES: usize = 64 * 1024;

/// A stored and verified archive of a run.
#[derive(Clone, Debug)]
pub struct RunArchive {
    /// Its address.
    pub uri: String,
    /// The hash of the archive.
    pub sha256: Sha256,
    /// `seq` of the last archived record.
    pub head_seq: u64,
    /// The hash of that record.
    pub head_hash: Sha256,
}

/// The first record of a run.
pub(crate) fn created(run: &Run, token: &Token, caller: &Caller, base: Option<&RecordedBase>) -> Entry {
    let policy = members(&run.policy);
    let text = canonical_json(&policy);
    let mut input = Map::new();
    input.insert("source".to_owned(), shown_source(&run.source));
    input.insert("creator".to_owned(), Value::from(caller.actor.as_str()));
    input.insert("labels".to_owned(), to_value(&run.labels));
    input.insert("policySha256".to_owned(), Value::from(Sha256::of(text.as_bytes()).to_string()));
    if text.len() <= MAX_POLICY_BYTES {
        input.insert("policy".to_owned(), Value::Object(policy));
    }
    let mounts = run.mounts.iter().map(|mount| json!({ "name": mount.name, "description": mount.description }));
    input.insert("mounts".to_owned(), mounts.collect());
    input.insert("token".to_owned(), token_value(token));
    input.extend(run.expires_at.as_ref().map(|at| ("expiresAt".to_owned(), Value::from(at.as_str()))));
    if let Some(ForkedFrom { run_id, seq, hash, .. }) = &run.parent {
        input.insert("parent".to_owned(), json!({ "runId": run_id, "seq": seq, "hash": hash }));
    }
    input.extend(run.base_commit.as_ref().map(|commit| ("baseCommit".to_owned(), Value::from(commit.as_str()))));
    if let Some(base) = base {
        input.insert("manifestSha256".to_owned(), Value::from(base.manifest_sha256.to_string()));
        input.extend(untracked(base));
    }
    entry(&run.run_id, Some(caller), "run.create", input, None)
}

/// Returns `run` as it is after its first record, which is that of `entry`.
pub(crate) fn after_creation(run: &Run, entry: &Entry) -> Run {
    let (record, _) = entry.draft.clone().link(0, Sha256::ZERO);
    let mut run = run.clone();
    (run.head_seq, run.people.calls) = (record.seq, record.seq);
    run.people.mutations = u64::from(record.mutates && !entry.steps.is_empty());
    run.head_hash = record.hash.unwrap_or(Sha256::ZERO);
    run
}

/// The record of an archive that a run is made from.
pub(crate) fn imported(
    run: &RunId,
    caller: &Caller,
    imported: &ImportedRun,
    base: &RecordedBase,
    import: ImportReport,
) -> Entry {
    let mut input = members(&json!({
        "baseCommit": imported.base_commit,
        "manifestSha256": imported.manifest_sha256,
        "files": imported.files,
        "bytes": imported.bytes,
    }));
    input.extend(untracked(base));
    let change = RunTransition::Open { base_commit: imported.base_commit.clone(), import };
    entry(run, Some(caller), "run.import", input, Some(change))
}

/// The hash of the files that git ignores, of a base in the object store.
fn untracked(base: &RecordedBase) -> Option<(String, Value)> {
    base.untracked_sha256.map(|hash| ("untrackedSha256".to_owned(), Value::from(hash.to_string())))
}

/// The record of a run of which the fork `child` was made, which starts with the record `at_seq`.
pub(crate) fn forked(parent: &RunId, caller: &Caller, child: &RunId, at_seq: u64) -> Entry {
    let input = json!({ "child": child, "atSeq": at_seq });
    let mut entry = entry(parent, Some(caller), "run.fork", members(&input), Some(RunTransition::Fork));
    entry.is_of_any_owner = true;
    entry
}

/// The record of a fork whose changes up to its record `seq` a call of `caller` has merged into the run `into`.
pub(crate) fn merged((fork, seq): (&RunId, u64), into: &RunId, caller: &Caller, call: &ToolCallId) -> Entry {
    let input = json!({ "into": into, "toolCallId": call, "seq": seq });
    let change = RunTransition::Merge { seq };
    let mut entry = entry(fork, Some(caller), "run.merge", members(&input), Some(change));
    entry.is_of_any_owner = true;
    entry
}

/// The record of a run that an operator closes.
pub(crate) fn closed(run: &RunId, caller: &Caller, at: &str) -> Entry {
    let input = json!({ "cause": "request" });
    entry(run, Some(caller), "run.close", members(&input), Some(RunTransition::Close { at: at.to_owned() }))
}

/// The record of a run that closes because it has expired.
pub(crate) fn expired(run: &RunId, expires_at: &str) -> Entry {
    let input = json!({ "cause": "expiry", "expiresAt": expires_at });
    entry(run, None, "run.close", members(&input), Some(RunTransition::Expire { expires_at: expires_at.to_owned() }))
}

/// The record of an import that begins again, because the process or the node that ran it has ended.
pub(crate) fn import_resumed(run: &RunId, import: ImportReport) -> Entry {
    entry(run, None, "run.resume_import", Map::new(), Some(RunTransition::ResumeImport { import }))
}

/// The record of a run that closes because its import has failed.
pub(crate) fn import_failed(run: &RunId, at: &str, import: ImportReport) -> Entry {
    let input = json!({ "cause": "import", "error": import.error });
    entry(run, None, "run.close", members(&input), Some(RunTransition::FailImport { at: at.to_owned(), import }))
}

/// The record of a run's deletion.
pub(crate) fn deleted(run: &RunId, caller: &Caller, at: &str) -> Entry {
    let input = json!({ "cause": "request" });
    entry(run, Some(caller), "run.delete", members(&input), Some(RunTransition::Delete { at: at.to_owned() }))
}

/// The record of a folder that is set aside, because its tree has changes up to the record `reached` which the ledger does not have any
/// more. The ledger ends with `head`.
pub(crate) fn set_aside(run: &RunId, head: ChainPoint, reached: ChainPoint) -> Entry {
    let mut input = members(&json!({ "headSeq": head.seq, "headHash": head.hash }));
    if reached != ChainPoint::UNKNOWN {
        input.extend(members(&json!({ "reachedSeq": reached.seq, "reachedHash": reached.hash })));
    }
    let mut entry = entry(run, None, "run.set_aside", input, None);
    entry.draft.reason = Some(
        "the database has lost records of the run: its folder was set aside in lost+found, and its files were made again".to_owned(),
    );
    entry
}

/// The record of a run's artifacts, which are in the object store under their hash.
pub(crate) fn artifacts_kept(run: &RunId, sha256: Sha256, size_bytes: u64) -> Entry {
    let input = json!({ "sha256": sha256, "sizeBytes": size_bytes });
    entry(run, None, KEEP_ARTIFACTS, members(&input), None)
}

/// The record of a run's archive, which the service made at `at`. It follows the archived records and names their head.
pub(crate) fn archived(run: &RunId, at: &str, archive: &RunArchive) -> Entry {
    let RunArchive { uri, sha256, head_seq, head_hash } = archive;
    let input = json!({ "uri": uri, "sha256": sha256, "headSeq": head_seq, "headHash": head_hash });
    let (at, uri, head_seq, head_hash) = (at.to_owned(), uri.clone(), *head_seq, *head_hash);
    let change = RunTransition::Archive { at, uri, head_seq, head_hash };
    entry(run, None, ARCHIVE_TOOL, members(&input), Some(change))
}

/// The record of another token of a run.
pub(crate) fn token_issued(token: &Token, caller: &Caller) -> Entry {
    let input = members(&token_value(token));
    entry(&token.run_id, Some(caller), "token.issue", input, Some(RunTransition::IssueToken(token.clone())))
}

/// The record of a token's revocation.
pub(crate) fn token_revoked(run: &RunId, caller: &Caller, token: &TokenId) -> Entry {
    let input = json!({ "tokenId": token });
    entry(run, Some(caller), "token.revoke", members(&input), Some(RunTransition::RevokeToken(token.clone())))
}

/// The tool in the records of runs whose agent was stopped.
pub(crate) const STOP: &str = "run.stop";

/// The record of a run whose agent is stopped: all its tokens are revoked.
pub(crate) fn stopped(run: &RunId, caller: &Caller, reason: &str) -> Entry {
    let mut entry = entry(run, Some(caller), STOP, Map::new(), Some(RunTransition::RevokeAllTokens));
    entry.draft.reason = Some(model::redact(reason).into_owned());
    entry
}

/// The record of the replacement of a run's labels or expiry time.
pub(crate) fn updated(
    run: &RunId,
    caller: &Caller,
    labels: Option<BTreeMap<String, String>>,
    expires_at: Option<Expiry>,
) -> Entry {
    let mut input = Map::new();
    input.extend(labels.as_ref().map(|labels| ("labels".to_owned(), to_value(labels))));
    let at = expires_at.clone().map(|at| Value::from(Option::<String>::from(at)));
    input.extend(at.map(|at| ("expiresAt".to_owned(), at)));
    entry(run, Some(caller), "run.update", input, Some(RunTransition::Update { labels, expires_at }))
}

/// What callers of the run may see of its source: not the service's own paths, of which it has the hashes.
pub(crate) fn shown_source(source: &Source) -> Value {
    match source {
        Source::Empty {} | Source::Archive {} | Source::Run { .. } => to_value(source),
        Source::Directory { path } => json!({ "type": "directory", "pathSha256": Sha256::of(path.as_bytes()) }),
        Source::Git { url, reference, credential } => {
            let mut value = if url.starts_with("https://") {
                json!({ "type": "git", "url": model::redact(url) })
            } else {
                json!({ "type": "git", "pathSha256": Sha256::of(url.as_bytes()) })
            };
            if let Some(reference) = reference {
                value["ref"] = Value::from(reference.as_str());
            }
            if let Some(credential) = credential {
                value["credential"] = Value::from(credential.as_str());
            }
            value
        }
    }
}

/// What a record says of a token: never its secret, nor the hash of it.
fn token_value(token: &Token) -> Value {
    let mut value = json!({ "tokenId": token.token_id, "permissions": token.permissions });
    if let Some(expires_at) = &token.expires_at {
        value["expiresAt"] = Value::from(expires_at.as_str());
    }
    value
}

/// Returns the entry of an operation by `caller`; `None` is the service itself.
fn entry(
    run: &RunId,
    caller: Option<&Caller>,
    tool: &str,
    input: Map<String, Value>,
    change: Option<RunTransition>,
) -> Entry {
    let input_sha256 = Sha256::of(canonical_json(&input).as_bytes());
    let actor = caller.map_or(SERVICE, |caller| caller.actor.as_str());
    let mut draft = Draft::new(run.clone(), actor.to_owned(), tool, new_tool_call_id(), now());
    RequestIds::write(caller.and_then(|caller| caller.request.as_deref()), &mut draft);
    draft.input = Some(redact_members(input));
    let mut entry = Entry::new(draft, input_sha256);
    entry.run_change = change;
    // Revocation and expiry hold at the commit.
    entry.preconditions.token = caller.and_then(|caller| caller.token.clone());
    entry
}

/// The members of a value that serialises as an object.
fn members(value: &impl Serialize) -> Map<String, Value> {
    match to_value(value) {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

fn to_value(value: &impl Serialize) -> Value {
    // Strings, numbers, lists and maps by strings always serialise.
    serde_json::to_value(value).unwrap_or_default()
}
