//! Creates runs: the request is checked, the source is imported, the run is stored.

mod check;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::future::BoxFuture;
use ledger::{Entry, Epoch, LedgerError, StoredRun};
use model::{
    Code, Disk, DiskUse, ForkedFrom, ImportReport, LogicalPath, Mount, PeopleCounts, PolicyOverrides, Refusal, Rules,
    Run, RunCounts, RunId, RunState, Sha256, Source, Token, Usage,
};
use serde::{Deserialize, Serialize};
use tracing::Instrument as _;
use workspace::{ChainPoint, Inherited, ListQuery, Tree};

pub(crate) use self::check::{check_labels, redacted_labels};
use self::check::{
    check_mount, check_no_credentials, check_reference, check_remote, check_ttl, no_credential, too_many,
};
use super::fork::{ForkPoint, MadeFiles};
use super::import::Origin;
use super::report_of;
use crate::CallError;
use crate::admission::idempotency::KeyedRequest;
use crate::admission::operators::OperatorIdentity;
use crate::admission::tokens::{IssueTokenRequest, IssuedToken};
use crate::caller::Caller;
use crate::clock::{new_run_id, now};
use crate::run::import_registry::ImportGuard;
use crate::run::lifecycle;
use crate::run::quota::{NewRunSlot, RunDisk};
use crate::runs::Runs;

const MAX_MOUNTS: usize = 16;
/// The maximum number of runs that are imported or wait for it when another one is to be imported in the background.
const MAX_BACKGROUND_IMPORTS: usize = 256;
const MAX_MOUNT_ENTRIES: usize = 100;

/// A request for a run.
#[derive(Clone, Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateRunRequest {
    /// The run's ID. Generated if omitted.
    #[serde(default)]
    #[schema(value_type = Option<RunId>, example = "issue-4711")]
    run_id: Option<String>,
    /// The source of the files.
    source: Source,
    /// The profile and the settings that differ from it. Default: the profile `SUPERVISED_PR`; for a fork, the policy of the other run.
    #[serde(default)]
    policy: Option<PolicyOverrides>,
    /// Additional read-only trees, at most 16. Default for a fork: those of the other run.
    #[serde(default)]
    mounts: Option<Vec<MountRequest>>,
    /// Labels for the orchestrator's own use, at most 64: names of 1 to 128 characters, values of at most 1,024. Credentials
    /// in them are replaced by `[redacted: kind]`.
    #[serde(default)]
    #[schema(example = json!({"ticket": "4711"}))]
    labels: Option<BTreeMap<String, String>>,
    /// Seconds until the run expires and closes, at most ten years. Default: never.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 315_360_000, example = 3600)]
    ttl_seconds: Option<i64>,
}

/// A read-only tree for a run.
#[derive(Clone, Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct MountRequest {
    /// The name by which tools refer to it.
    #[schema(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$", example = "docs")]
    name: String,
    /// A description of its content for the model, 1 to 2,000 characters.
    #[schema(example = "The house's style guides.")]
    description: String,
    /// The folder, under an import root.
    #[schema(example = "/srv/templates/docs")]
    path: String,
}

/// A created run and its first token. The token's secret is shown only once.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CreatedRun {
    /// The run.
    pub run: Run,
    /// The run's first token, with every permission but `event:append`, `evidence:attest`, `changeset:apply` and
    /// `command:serve`.
    pub token: IssuedToken,
}

/// When the creation of a run is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreationAnswer {
    /// After the import. If it fails there is no run.
    AfterImport,
    /// Once the run is stored as `preparing`. If the import fails the run is closed.
    AtOnce,
}

/// A checked request.
struct CheckedRequest {
    stored: StoredRun,
    origin: Option<Origin>,
    fork: Option<ForkPoint>,
    token: Token,
    issued: IssuedToken,
    keyed: Option<KeyedRequest>,
}

/// The mounts of a run, and the physical path of each by name.
#[derive(Default)]
struct CheckedMounts {
    mounts: Vec<Mount>,
    paths: Vec<(String, String)>,
}

impl Runs {
    /// Creates a run. A repetition under the same key returns the run with another token. Runs to completion even if the client
    /// disconnects.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, `IDEMPOTENCY_KEY_REUSED`, `ALREADY_EXISTS`, `QUOTA_EXCEEDED`, and, if the answer comes after the import, the refusals of the
    /// source. Nothing remains of the run then.
    pub fn create_run<'a>(
        self: &'a Arc<Self>,
        request: CreateRunRequest,
        creator: Arc<OperatorIdentity>,
        caller: &'a Caller,
        keyed: Option<KeyedRequest>,
        answer: CreationAnswer,
    ) -> BoxFuture<'a, Result<CreatedRun, CallError>> {
        Box::pin(async move {
            let (runs, caller) = (Arc::clone(self), caller.clone());
            let work = async move {
                // Boxed, so that who waits for it does not carry its size.
                let create = Box::pin(runs.create(request, creator, &caller, keyed.clone(), answer));
                let repeat = |first: CreatedRun| {
                    let (engine, caller) = (&runs.engine, &caller);
                    async move {
                        let request = IssueTokenRequest::default();
                        let token = engine.create_token(&first.run.run_id, caller, request, None).await?;
                        Ok(CreatedRun { token, ..first })
                    }
                };
                runs.engine.once(keyed.as_ref(), create, repeat).await
            };
            self.engine.detached(work).await
        })
    }

    /// Creates a run, whatever was answered under its key. Must run as a task of its own.
    async fn create(
        self: &Arc<Self>,
        request: CreateRunRequest,
        creator: Arc<OperatorIdentity>,
        caller: &Caller,
        keyed: Option<KeyedRequest>,
        answer: CreationAnswer,
    ) -> Result<CreatedRun, CallError> {
        let (runs, fork) = (Arc::clone(self), Box::pin(self.fork_point(&request.source)).await?);
        let check = move || runs.check(request, fork, keyed).map_err(CallError::from);
        let mut checked = self.engine.blocking(check).await?;
        checked.stored.run.created_by = Some(creator.name.clone());
        let run = checked.stored.run.run_id.clone();
        let disk = RunDisk::new(&self.engine.node, &checked.stored.run.policy.quota, Disk::default()).reservation();
        let importing = self.engine.imports.begin(checked.stored.run.clone(), disk).ok_or_else(|| exists(&run))?;
        if self.engine.ledger.run(&run).await?.is_some() {
            return Err(exists(&run).into());
        }
        let slot = self.engine.node.add_run()?;
        match (answer, checked.origin.take()) {
            (CreationAnswer::AtOnce, Some(origin)) => {
                self.store_and_import(checked, origin, importing, slot, creator, caller).await
            }
            (_, origin) => {
                checked.origin = origin;
                self.import_and_store(checked, importing, slot, &creator, caller).await
            }
        }
    }

    /// Stores the run as `preparing`, and imports its files in the background.
    async fn store_and_import(
        self: &Arc<Self>,
        checked: CheckedRequest,
        origin: Origin,
        importing: ImportGuard,
        slot: NewRunSlot,
        creator: Arc<OperatorIdentity>,
        caller: &Caller,
    ) -> Result<CreatedRun, CallError> {
        let CheckedRequest { stored, token, issued, keyed, .. } = checked;
        let id = stored.run.run_id.clone();
        self.engine.tokens.operators.check(&creator)?;
        if self.engine.imports.len() > MAX_BACKGROUND_IMPORTS {
            let message = format!("{MAX_BACKGROUND_IMPORTS} imports are waiting already");
            return Err(Refusal::new(Code::Unavailable, message, "Try again once some of them have ended.").into());
        }
        let mut entry = lifecycle::created(&stored.run, &token, caller, None);
        let run = lifecycle::after_creation(&stored.run, &entry);
        entry.keyed_answer =
            keyed.map(|keyed| keyed.answer(&CreatedRun { run: run.clone(), token: issued.without_secret() }));
        let done = match self.store_run(&stored, &token, vec![entry]).await {
            Ok(()) => Ok(CreatedRun { run, token: issued }),
            Err(LedgerError::AlreadyExists) => return Err(exists(&id).into()),
            // The run may be stored, and must not stay `preparing` then.
            Err(error @ LedgerError::InDoubt(_)) => Err(error.into()),
            Err(error) => return Err(error.into()),
        };
        slot.keep();
        importing.import.note_stored();
        let (runs, caller) = (Arc::clone(self), caller.clone());
        let import = async move { runs.import_stored(&id, importing, origin, &creator, &caller).await };
        self.engine.tasks.spawn(import.in_current_span());
        done
    }

    async fn import_and_store(
        &self,
        checked: CheckedRequest,
        importing: ImportGuard,
        slot: NewRunSlot,
        creator: &OperatorIdentity,
        caller: &Caller,
    ) -> Result<CreatedRun, CallError> {
        let CheckedRequest { mut stored, origin, fork, token, issued, keyed } = checked;
        let id = stored.run.run_id.clone();
        let made = self.make_files(&stored.run, origin, fork.as_ref(), &importing, creator).await?;
        if let Some(MadeFiles { report, disk, own, base, .. }) = &made {
            stored.run.state = RunState::Open;
            stored.run.import = report.clone();
            stored.run.disk = DiskUse::new(*disk, *own, 0);
            stored.run.base_commit = Some(base.recorded.commit.clone());
        }
        let (has_files, is_fork) = (made.is_some(), fork.is_some());
        if let Err(refusal) = self.engine.tokens.operators.check(creator) {
            if has_files {
                self.remove_files(&id).await;
            }
            return Err(refusal.into());
        }
        let recorded = made.as_ref().map(|made| &made.base.recorded);
        let mut entry = lifecycle::created(&stored.run, &token, caller, recorded);
        if let Some(made) = made {
            made.add_to(&mut entry);
        }
        // The ledger links the same draft to the same head.
        let run = lifecycle::after_creation(&stored.run, &entry);
        entry.keyed_answer =
            keyed.map(|keyed| keyed.answer(&CreatedRun { run: run.clone(), token: issued.without_secret() }));
        if has_files {
            self.note_creation(&run).await?;
        }
        let of_parent = fork.map(|fork| {
            let ForkedFrom { run_id, seq, .. } = fork.parent();
            lifecycle::forked(&run_id, caller, &id, seq)
        });
        let entries = [entry].into_iter().chain(of_parent).collect();
        if let Err(error) = self.store_run(&stored, &token, entries).await {
            // If the outcome is uncertain, the files stay: the next start removes them if the ledger does not have the run.
            if has_files && !matches!(error, LedgerError::InDoubt(_)) {
                self.remove_files(&id).await;
            }
            return Err(match error {
                LedgerError::AlreadyExists => exists(&id).into(),
                error => error.into(),
            });
        }
        if has_files {
            self.confirm(&id, self.engine.ledger.node().map(|_| Epoch::FIRST)).await;
        }
        if is_fork {
            self.prune_inherited(&id).await;
        }
        slot.keep();
        importing.import.settle(stored.run.disk.tree());
        drop(importing);
        tracing::info!(run.id = %id, files = stored.run.import.files, bytes = stored.run.import.bytes, "run created");
        Ok(CreatedRun { run, token: issued })
    }

    /// Makes the files of a run: those of its source, or of the run that it is a fork of; `None` if they are uploaded later.
    async fn make_files(
        &self,
        run: &Run,
        origin: Option<Origin>,
        fork: Option<&ForkPoint>,
        importing: &ImportGuard,
        creator: &OperatorIdentity,
    ) -> Result<Option<MadeFiles>, CallError> {
        if let Some(fork) = fork {
            let (workspaces, id) = (Arc::clone(&self.engine.workspaces), run.run_id.clone());
            if self.engine.blocking(move || Ok(workspaces.has_folder(&id)?)).await? {
                return Err(exists(&run.run_id).into());
            }
            let rules = Rules::compile(run.policy.clone())?;
            return Ok(Some(Box::pin(self.make_fork(&run.run_id, fork, importing, rules)).await?));
        }
        let Some(origin) = origin else { return Ok(None) };
        let patience = Some(self.engine.limits.request_timeout);
        let (imported, base) = self.import(&run.run_id, importing, origin, Some(creator), patience).await?;
        let disk = Disk { bytes: imported.bytes, files: imported.files };
        let (report, own) = (report_of(&imported), Disk::default());
        Ok(Some(MadeFiles { report, disk, own, base, inherited: Inherited::default() }))
    }

    /// Notes in the folder of an imported run that its tree is that of the first record. Before the commit, because it can be opened from
    /// then on.
    async fn note_creation(&self, run: &Run) -> Result<(), CallError> {
        let (workspaces, id) = (Arc::clone(&self.engine.workspaces), run.run_id.clone());
        let created = ChainPoint { seq: run.head_seq, hash: run.head_hash };
        let noted = self.engine.blocking(move || Ok(workspaces.set_tree_note(&id, created)?)).await;
        if noted.is_err() {
            self.remove_files(&run.run_id).await;
        }
        noted
    }

    /// Stores a run with its first records. If the outcome is uncertain, tries once more, which waits for the first attempt.
    async fn store_run(&self, stored: &StoredRun, token: &Token, entries: Vec<Entry>) -> ledger::Result<()> {
        let ledger = &self.engine.ledger;
        match ledger.create_run(stored, token, entries.clone()).await {
            Err(LedgerError::InDoubt(_)) => {}
            done => return done.map(drop),
        }
        match ledger.create_run(stored, token, entries).await {
            // The token is stored with the run, and no other run has it.
            Err(LedgerError::AlreadyExists) => match ledger.token(&token.secret_sha256).await {
                Ok(Some(_)) => Ok(()),
                Ok(None) => Err(LedgerError::AlreadyExists),
                Err(error) => Err(uncertain(error)),
            },
            done => done.map(drop).map_err(uncertain),
        }
    }

    /// Checks everything that can be checked before the import. Blocks: it reads the disk.
    fn check(
        &self,
        request: CreateRunRequest,
        fork: Option<ForkPoint>,
        keyed: Option<KeyedRequest>,
    ) -> Result<CheckedRequest, Refusal> {
        let run_id = match request.run_id {
            None => new_run_id(),
            Some(raw) => {
                let hint = "Give another runId, or omit it to have one generated.";
                no_credential("runId", &raw, hint)?;
                RunId::parse(&raw).map_err(|error| Refusal::invalid(error.to_string(), hint))?
            }
        };
        check_labels(request.labels.as_ref())?;
        let expires_at = request.ttl_seconds.map(check_ttl).transpose()?;
        let rules = match (&fork, request.policy) {
            (Some(fork), None) => Rules::compile(fork.run().policy.clone())?,
            (_, policy) => self.profiles.read().resolve(&policy.unwrap_or_default())?,
        };
        let origin = self.origin(&request.source)?;
        let CheckedMounts { mounts, paths: mount_paths } = match (&fork, request.mounts) {
            (Some(fork), None) => {
                CheckedMounts { mounts: fork.run().mounts.clone(), paths: fork.mount_paths().to_vec() }
            }
            (_, requested) => self.check_mounts(requested.unwrap_or_default(), &rules)?,
        };
        let (token, issued) = IssueTokenRequest::default().issue(&run_id)?;
        let mut run = Run {
            run_id,
            state: RunState::Preparing,
            created_at: now(),
            created_by: None,
            closed_at: None,
            expires_at,
            archived_at: None,
            archive_uri: None,
            base_commit: None,
            source: request.source,
            parent: fork.as_ref().map(ForkPoint::parent),
            forks: None,
            more_forks: false,
            policy: rules.policy().clone(),
            mounts,
            labels: redacted_labels(request.labels.unwrap_or_default()),
            import: ImportReport { progress: "waiting".to_owned(), ..ImportReport::default() },
            disk: DiskUse::default(),
            counts: RunCounts::default(),
            people: PeopleCounts::default(),
            head_seq: 0,
            head_hash: Sha256::ZERO,
            last_activity_at: None,
            repository: None,
            agent: None,
            prompt: None,
        };
        run.name_by_labels();
        let stored = StoredRun { run, usage: Usage::default(), mount_paths, needs_repair: false };
        Ok(CheckedRequest { stored, origin, fork, token, issued, keyed })
    }

    /// Returns the source of the files; `None` if the operator uploads them with another request.
    pub(super) fn origin(&self, source: &Source) -> Result<Option<Origin>, Refusal> {
        check_no_credentials(source)?;
        Ok(Some(match source {
            Source::Empty {} => Origin::Empty,
            // The files of a fork are made from those of the other run.
            Source::Archive {} | Source::Run { .. } => return Ok(None),
            Source::Directory { path } => Origin::Directory(self.engine.workspaces.allow(path)?.into()),
            Source::Git { url, reference, credential } => {
                let (reference, credential) = (reference.clone(), credential.clone());
                if let Some(reference) = &reference {
                    check_reference(reference)?;
                }
                match url.split_once("://") {
                    None if credential.is_some() => {
                        let hint = "Omit it, or give the repository's `https://` URL.";
                        return Err(Refusal::invalid("`source.credential` is for `https` URLs only", hint));
                    }
                    None => Origin::GitLocal { path: self.engine.workspaces.allow(url)?.into(), reference },
                    Some(("https", rest)) => {
                        check_remote(rest)?;
                        if let Some(name) = &credential {
                            self.engine.workspaces.check_credential(name, url)?;
                        }
                        Origin::GitRemote { url: url.clone(), reference, credential }
                    }
                    Some(_) => {
                        let hint = "Give a URL that begins with `https://`, or a path under an import root.";
                        return Err(Refusal::invalid("the scheme of `source.url` is not supported", hint));
                    }
                }
            }
        }))
    }

    fn check_mounts(&self, requested: Vec<MountRequest>, rules: &Rules) -> Result<CheckedMounts, Refusal> {
        if requested.len() > MAX_MOUNTS {
            return Err(too_many("mounts", MAX_MOUNTS, requested.len()));
        }
        let mut names = BTreeSet::new();
        let mut checked = CheckedMounts::default();
        for mount in requested {
            check_mount(&mount.name, &mount.description)?;
            if !names.insert(mount.name.clone()) {
                let message = format!("two mounts have the name `{}`", mount.name);
                return Err(Refusal::invalid(message, "Give each mount a different name."));
            }
            let path = self.engine.workspaces.allow(&mount.path)?;
            let entries = top_level(&path, rules)?;
            let path = path.into_os_string().into_string();
            let path =
                path.map_err(|_| Refusal::invalid("the path of a mount is not UTF-8", "Give another folder."))?;
            checked.paths.push((mount.name.clone(), path));
            let description = model::redact(&mount.description).into_owned();
            checked.mounts.push(Mount { name: mount.name, description, entries });
        }
        Ok(checked)
    }
}

/// Returns the names in the root folder of a mount that the run's policy does not hide.
fn top_level(path: &Path, rules: &Rules) -> Result<Vec<String>, Refusal> {
    let unusable =
        || Refusal::invalid("the path of a mount is not a folder that can be opened", "Give another folder.");
    let tree = Tree::open_mount(path).map_err(|_| unusable())?;
    let query = ListQuery {
        path: LogicalPath::root(),
        max_depth: 1,
        include_hidden: false,
        include_ignored: true,
        max_entries: MAX_MOUNT_ENTRIES,
        after: None,
        counts_all: false,
    };
    let listing = tree.list(rules, &query, &AtomicBool::new(false)).map_err(|_| unusable())?;
    Ok(listing.entries.into_iter().map(|entry| entry.path).collect())
}

/// Returns the error of a second attempt, which leaves the outcome of the first one uncertain.
pub(crate) fn uncertain(error: LedgerError) -> LedgerError {
    LedgerError::InDoubt(Box::new(error))
}

fn exists(run: &RunId) -> Refusal {
    let message = format!("the run `{run}` already exists");
    Refusal::new(Code::AlreadyExists, message, "Give another runId, or omit it to have one generated.")
}
