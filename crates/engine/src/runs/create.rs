//! The making of a run: checked whole, then imported, then remembered.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ledger::{LedgerError, StoredRun};
use model::{
    Code, Disk, ImportReport, LogicalPath, Mount, PolicyOverrides, Refusal, Rules, Run, RunCounts, RunId, RunState,
    Sha256, Source, Token, Usage,
};
use serde::{Deserialize, Serialize};
use workspace::{ListQuery, Tree};

use super::{Origin, report_of};
use crate::CallError;
use crate::admission::tokens::{IssueTokenRequest, IssuedToken};
use crate::clock::{new_run_id, now, now_plus};
use crate::engine::Engine;
use crate::runs::import_registry::{CancelOnDrop, ImportGuard};
use crate::runs::quota::{NewRunSlot, RunDisk};

const MAX_LABELS: usize = 64;
const MAX_LABEL_NAME: usize = 128;
const MAX_LABEL_VALUE: usize = 1024;
const MAX_MOUNTS: usize = 16;
const MAX_MOUNT_NAME: usize = 64;
const MAX_MOUNT_ENTRIES: usize = 100;
const MAX_DESCRIPTION: usize = 2000;
/// Ten years.
const MAX_TTL_SECONDS: i64 = 315_360_000;

/// What `POST /v1/runs` takes.
#[derive(Clone, Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateRunRequest {
    /// The run's ID; one is made where it is missing.
    #[serde(default)]
    #[schema(value_type = Option<RunId>, example = "issue-4711")]
    run_id: Option<String>,
    /// What its tree starts with.
    source: Source,
    /// What differs from the profile; `SUPERVISED_PR` where nothing is said.
    #[serde(default)]
    policy: Option<PolicyOverrides>,
    /// Read-only trees beside its own, at most 16.
    #[serde(default)]
    mounts: Option<Vec<MountRequest>>,
    /// The orchestrator's own notes, at most 64: names of 1 to 128 characters, values of at most 1,024. A credential in
    /// one is replaced by `[redacted: kind]`.
    #[serde(default)]
    #[schema(example = json!({"ticket": "4711"}))]
    labels: Option<BTreeMap<String, String>>,
    /// Seconds until the run closes by itself, at most ten years; never where it is missing.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 315_360_000, example = 3600)]
    ttl_seconds: Option<i64>,
}

/// A read-only tree that a run shall have.
#[derive(Clone, Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct MountRequest {
    /// What tools call it by.
    #[schema(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$", example = "docs")]
    name: String,
    /// What is in it, for the model to read; 1 to 2,000 characters.
    #[schema(example = "The house's style guides.")]
    description: String,
    /// The folder, under an import root.
    #[schema(example = "/srv/templates/docs")]
    path: String,
}

/// A run that was made, with its token, which is shown this once.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct CreatedRun {
    /// The run.
    pub run: Run,
    /// Its first token, with every permission.
    token: IssuedToken,
}

/// A run that may be made: everything of the request is checked.
struct Checked {
    stored: StoredRun,
    origin: Option<Origin>,
    token: Token,
    issued: IssuedToken,
}

/// A run's mounts, and where they are on the disk, by name.
#[derive(Default)]
struct CheckedMounts {
    mounts: Vec<Mount>,
    paths: Vec<(String, String)>,
}

impl Engine {
    /// Makes a run: all of it, or nothing.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, `ALREADY_EXISTS`, or whatever the source is refused for.
    pub async fn create_run(&self, request: CreateRunRequest) -> Result<CreatedRun, CallError> {
        let engine = self.clone();
        let checked = self.blocking(move || engine.check(request).map_err(CallError::from)).await?;
        let run = checked.stored.run.run_id.clone();
        let disk = RunDisk::new(&self.node, &checked.stored.run.policy.quota, Disk::default()).reservation();
        let importing = self.imports.begin(checked.stored.run.clone(), disk).ok_or_else(|| exists(&run))?;
        if self.ledger.run(&run).await?.is_some() {
            return Err(exists(&run).into());
        }
        let slot = self.node.enter_run()?;
        let _cancel = CancelOnDrop(Arc::clone(&importing.import));
        let engine = self.clone();
        self.detached(async move { engine.bring_in(checked, importing, slot).await }).await
    }

    async fn bring_in(
        &self,
        checked: Checked,
        importing: ImportGuard,
        slot: NewRunSlot,
    ) -> Result<CreatedRun, CallError> {
        let Checked { mut stored, origin, token, issued } = checked;
        let id = stored.run.run_id.clone();
        if let Some(origin) = origin {
            let imported = self.import(&id, &importing, origin).await?;
            stored.run.state = RunState::Open;
            stored.run.import = report_of(&imported);
            stored.run.disk = Disk { bytes: imported.bytes, files: imported.files };
            stored.run.base_commit = Some(imported.base_commit);
        }
        let has_files = stored.run.base_commit.is_some();
        self.tokens.note(&token);
        if let Err(error) = self.store_run(&stored, &token).await {
            // Files of a run that the store may know are left: where it does not, the next start removes them as unfinished.
            if has_files && !matches!(error, LedgerError::InDoubt(_)) {
                self.remove_files(&id).await;
            }
            return Err(match error {
                LedgerError::AlreadyExists => exists(&id).into(),
                error => error.into(),
            });
        }
        if has_files {
            self.confirm(&id).await;
        }
        slot.keep();
        importing.import.settle(stored.run.disk);
        drop(importing);
        tracing::info!(run.id = %id, files = stored.run.import.files, bytes = stored.run.import.bytes, "run created");
        Ok(CreatedRun { run: stored.run, token: issued })
    }

    /// Stores a run; where the outcome of that is in doubt, tries once more, which has to wait for the first attempt.
    async fn store_run(&self, stored: &StoredRun, token: &Token) -> ledger::Result<()> {
        let ledger = &self.ledger;
        match ledger.create_run(stored, token).await {
            Err(LedgerError::InDoubt(_)) => {}
            done => return done,
        }
        match ledger.create_run(stored, token).await {
            // Nobody else has this token.
            Err(LedgerError::AlreadyExists) => match ledger.token(&token.secret_sha256).await {
                Ok(Some(_)) => Ok(()),
                Ok(None) => Err(LedgerError::AlreadyExists),
                Err(error) => Err(still_in_doubt(error)),
            },
            done => done.map_err(still_in_doubt),
        }
    }

    /// Checks everything that can be checked before files come in. Looks at the disk for paths.
    fn check(&self, request: CreateRunRequest) -> Result<Checked, Refusal> {
        let run_id = match request.run_id {
            None => new_run_id(),
            Some(raw) => {
                let hint = "Give another runId, or leave it out for one that is made.";
                no_credential("runId", &raw, hint)?;
                RunId::parse(&raw).map_err(|error| Refusal::invalid(error.to_string(), hint))?
            }
        };
        check_labels(request.labels.as_ref())?;
        let expires_at = request.ttl_seconds.map(check_ttl).transpose()?;
        let rules = self.profiles.resolve(&request.policy.unwrap_or_default())?;
        let origin = self.origin(&request.source)?;
        let CheckedMounts { mounts, paths: mount_paths } =
            self.check_mounts(request.mounts.unwrap_or_default(), &rules)?;
        let (token, issued) = IssueTokenRequest::default().issue(&run_id)?;
        let run = Run {
            run_id,
            state: RunState::Preparing,
            created_at: now(),
            closed_at: None,
            expires_at,
            base_commit: None,
            source: request.source,
            policy: rules.policy().clone(),
            mounts,
            labels: redacted_labels(request.labels.unwrap_or_default()),
            import: ImportReport { progress: "waiting".to_owned(), ..ImportReport::default() },
            disk: Disk::default(),
            counts: RunCounts::default(),
            head_seq: 0,
            head_hash: Sha256::ZERO,
        };
        let stored = StoredRun { run, usage: Usage::default(), mount_paths, needs_repair: false };
        Ok(Checked { stored, origin, token, issued })
    }

    /// Where the files come from; `None` where the operator sends them next.
    fn origin(&self, source: &Source) -> Result<Option<Origin>, Refusal> {
        check_shown(source)?;
        Ok(Some(match source {
            Source::Empty {} => Origin::Empty,
            Source::Archive {} => return Ok(None),
            Source::Directory { path } => Origin::Directory(self.workspaces.allow(path)?.into()),
            Source::Git { url, reference } => {
                let reference = reference.clone();
                if let Some(reference) = &reference {
                    check_reference(reference)?;
                }
                match url.split_once("://") {
                    None => Origin::GitLocal { path: self.workspaces.allow(url)?.into(), reference },
                    Some(("https", rest)) => {
                        check_remote(rest)?;
                        Origin::GitRemote { url: url.clone(), reference }
                    }
                    Some(_) => {
                        let hint = "Give an address that begins with `https://`, or a path under an import root.";
                        return Err(Refusal::invalid("`source.url` is of a kind that is not allowed", hint));
                    }
                }
            }
        }))
    }

    fn check_mounts(&self, wanted: Vec<MountRequest>, rules: &Rules) -> Result<CheckedMounts, Refusal> {
        if wanted.len() > MAX_MOUNTS {
            return Err(too_many("mounts", MAX_MOUNTS, wanted.len()));
        }
        let mut names = BTreeSet::new();
        let mut checked = CheckedMounts::default();
        for mount in wanted {
            check_mount(&mount)?;
            if !names.insert(mount.name.clone()) {
                let message = format!("the mount `{}` is there twice", mount.name);
                return Err(Refusal::invalid(message, "Give every mount a name of its own."));
            }
            let path = self.workspaces.allow(&mount.path)?;
            let entries = top_level(&path, rules)?;
            let path = path.into_os_string().into_string();
            let path = path.map_err(|_| Refusal::invalid("a mount's path is no UTF-8", "Give another folder."))?;
            checked.paths.push((mount.name.clone(), path));
            let description = model::redact(&mount.description).into_owned();
            checked.mounts.push(Mount { name: mount.name, description, entries });
        }
        Ok(checked)
    }
}

/// The names at the top of a mount, as far as the run's policy shows them.
fn top_level(path: &Path, rules: &Rules) -> Result<Vec<String>, Refusal> {
    let unusable = || Refusal::invalid("a mount's path is no folder that can be opened", "Give another folder.");
    let tree = Tree::open_mount(path).map_err(|_| unusable())?;
    let query = ListQuery {
        path: LogicalPath::root(),
        max_depth: 1,
        include_hidden: false,
        include_ignored: true,
        max_entries: MAX_MOUNT_ENTRIES,
    };
    let listing = tree.list(rules, &query, &AtomicBool::new(false)).map_err(|_| unusable())?;
    Ok(listing.entries.into_iter().map(|entry| entry.path).collect())
}

/// A second attempt that fails says nothing of the first.
pub(crate) fn still_in_doubt(error: LedgerError) -> LedgerError {
    LedgerError::InDoubt(Box::new(error))
}

fn exists(run: &RunId) -> Refusal {
    let message = format!("there is a run `{run}` already");
    Refusal::new(Code::AlreadyExists, message, "Give another runId, or leave it out for one that is made.")
}

fn too_many(what: &str, limit: usize, actual: usize) -> Refusal {
    Refusal::invalid(format!("`{what}` takes at most {limit}"), "Give fewer.")
        .with_details(|details| (details.limit, details.actual) = (Some(limit as u64), Some(actual as u64)))
}

fn check_ttl(seconds: i64) -> Result<String, Refusal> {
    if (1..=MAX_TTL_SECONDS).contains(&seconds) {
        Ok(now_plus(seconds))
    } else {
        let message = format!("`ttlSeconds` takes 1 to {MAX_TTL_SECONDS}");
        Err(Refusal::invalid(message, "Give another number, or leave it out for a run that stays open."))
    }
}

fn check_labels(labels: Option<&BTreeMap<String, String>>) -> Result<(), Refusal> {
    let Some(labels) = labels else { return Ok(()) };
    if labels.len() > MAX_LABELS {
        return Err(too_many("labels", MAX_LABELS, labels.len()));
    }
    for (name, value) in labels {
        let name_fits = (1..=MAX_LABEL_NAME).contains(&name.chars().count()) && !name.chars().any(char::is_control);
        let value_fits = value.chars().count() <= MAX_LABEL_VALUE && !value.contains('\0');
        if !name_fits || !value_fits {
            let shown: String = model::excerpt(name, 40).chars().filter(|c| !c.is_control()).collect();
            return Err(Refusal::invalid(
                format!("the label `{shown}` is too long, empty or holds control characters"),
                format!("A label's name takes 1 to {MAX_LABEL_NAME} characters, its value at most {MAX_LABEL_VALUE}."),
            ));
        }
    }
    Ok(())
}

/// The labels as they are kept: without credentials.
fn redacted_labels(labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let redacted = |text: String| model::redact(&text).into_owned();
    labels.into_iter().map(|(name, value)| (redacted(name), redacted(value))).collect()
}

fn check_mount(mount: &MountRequest) -> Result<(), Refusal> {
    let of_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let name_fits = mount.name.len() <= MAX_MOUNT_NAME
        && mount.name.bytes().next().is_some_and(of_name)
        && mount.name.bytes().all(|byte| of_name(byte) || matches!(byte, b'_' | b'-'));
    if !name_fits {
        let hint = "Use a lower-case letter or digit, then up to 63 lower-case letters, digits, `_` or `-`.";
        return Err(Refusal::invalid("a mount's name breaks its grammar", hint));
    }
    if mount.description.trim().is_empty() || mount.description.chars().count() > MAX_DESCRIPTION {
        let message = format!("the description of the mount `{}` takes 1 to {MAX_DESCRIPTION} characters", mount.name);
        return Err(Refusal::invalid(message, "Say in a sentence what is in it: models read it."));
    }
    Ok(())
}

/// The run shows its source, and a credential cannot be replaced there: it would be another source.
fn check_shown(source: &Source) -> Result<(), Refusal> {
    let hint = "Whoever may read the run would see it. Give a source that names no credential.";
    match source {
        Source::Empty {} | Source::Archive {} => Ok(()),
        Source::Directory { path } => no_credential("source.path", path, hint),
        Source::Git { url, reference } => {
            no_credential("source.url", url, hint)?;
            no_credential("source.ref", reference.as_deref().unwrap_or_default(), hint)
        }
    }
}

/// What is shown as it is, and kept so, may hold no credential.
fn no_credential(name: &str, text: &str, hint: &str) -> Result<(), Refusal> {
    match model::credential_in(text.as_bytes()) {
        None => Ok(()),
        Some(what) => Err(Refusal::invalid(format!("`{name}` holds a credential: {what}"), hint)),
    }
}

/// What follows `https://`: the run shows its source, so it may hold no secret; and git may take it for nothing else.
fn check_remote(rest: &str) -> Result<(), Refusal> {
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let odd = |c: char| c.is_control() || c.is_whitespace();
    if host.is_empty() || host.starts_with('-') || rest.len() > 2000 || rest.contains(odd) {
        return Err(Refusal::invalid("`source.url` is no usable address", "Give `https://HOST/PATH`."));
    }
    if host.contains('@') {
        let hint = "Whoever may read the run would see them. Give an address without credentials.";
        return Err(Refusal::invalid("`source.url` holds credentials", hint));
    }
    Ok(())
}

fn check_reference(reference: &str) -> Result<(), Refusal> {
    let odd = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '~' | '^' | ':' | '?' | '*' | '[' | '\\');
    if reference.is_empty() || reference.len() > 255 || reference.starts_with('-') || reference.contains(odd) {
        return Err(Refusal::invalid("`source.ref` is no branch, tag or commit", "Give the name or the whole hash."));
    }
    Ok(())
}
